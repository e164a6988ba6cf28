//! Temporary: prints this host's inventory.
use hairpin_mesh::collect::{Options, collect};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let devices = std::env::args().skip(1).map(|name| name.parse()).collect::<Result<_, _>>()?;
    print!("{}", hairpin_mesh::json::pretty(&collect(&Options { host: None, devices })?));
    Ok(())
}
