//! `hairpin-mesh`: RDMA fabric verifier and hairpin mesh installer.
//!
//! Where things live:
//!
//! | module | what it is | I/O |
//! |---|---|---|
//! | [`names`] | validated names and addresses; nothing from outside becomes a name elsewhere | none |
//! | [`json`] | strict JSON input whose errors name the place | none |
//! | [`finding`] | the unit of every report | none |
//! | [`facts`] | the facts of one node, and their document | none |
//! | [`plan`] | facts to plan: checks, ring, paths, routes, rules, markers, environment | none |
//! | [`folder`] | plan to the files of the plan folder | none |

#![warn(missing_docs)]

pub mod facts;
pub mod finding;
pub mod folder;
pub mod json;
pub mod names;
pub mod plan;
