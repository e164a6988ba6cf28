//! The plan folder: what `plan` writes beside `plan.json`.
//!
//! | file | what it is |
//! |---|---|
//! | `script.rs` | `mesh-up-<host>.sh` and `mesh-down-<host>.sh`; their functions are in `script/` |

pub mod script;
