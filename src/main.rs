//! t
use hairpin_mesh::{facts::Inventory, plan::*};
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let hosts: Vec<hairpin_mesh::names::HostName> = a[3..].iter().map(|h| h.parse().unwrap()).collect();
    let inv: Vec<Inventory> = hosts
        .iter()
        .map(|h| {
            let p = format!("{}/{h}.json", a[1]);
            Inventory::from_json(&p, &std::fs::read(&p).unwrap()).unwrap()
        })
        .collect();
    let o = Options {
        opposite_paths: if a[2] == "4" { OppositePaths::Four } else { OppositePaths::Two },
        ..Default::default()
    };
    let r = plan(&hosts, &inv, &o);
    for f in &r.findings {
        eprintln!("{f}");
    }
    if let Some((mut p, ring)) = r.plan {
        if std::env::var("STRATEGY").is_ok() {
            let c = Choices {
                opposite_paths: p.opposite_paths,
                gid_index: p.gid_index,
                hairpin_queue_size: p.hairpin_queue_size,
                hairpin_queue_wanted: p.hairpin_queue_wanted,
                strategy: RouteStrategy::ScopeLink,
                identities: Default::default(),
            };
            p = assemble(&ring, &hosts, &c).unwrap();
        }
        print!("{}", hairpin_mesh::json::pretty(&p));
        if let Ok(out) = std::env::var("SCRIPTS") {
            for h in &p.hosts {
                let hp = p.for_host(h.as_str()).unwrap();
                std::fs::write(format!("{out}/mesh-up-{h}.sh"), hairpin_mesh::folder::script::mesh_up(&p, &hp))
                    .unwrap();
                std::fs::write(format!("{out}/mesh-down-{h}.sh"), hairpin_mesh::folder::script::mesh_down(&p, &hp))
                    .unwrap();
            }
        }
    }
}
