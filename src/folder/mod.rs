//! The plan folder: what `plan` writes, file by file.
//!
//! | file | what it is |
//! |---|---|
//! | `topology_svg.rs` | `topology.svg`: the ring as a picture to print and hold against the cables |

pub mod topology_svg;

pub use self::topology_svg::topology_svg;
