//! The stand-ins for libibverbs and libmlx5 (`rdma_core/README.md`), built for a test.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

/// The folder with the two libraries, built once.
pub fn libraries() -> &'static Path {
    static BUILT: OnceLock<TempDir> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            let folder = tempfile::tempdir().unwrap();
            let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/common/rdma_core");
            let versions =
                Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ring/mlx5-shim/libmlx5.map");
            let version_script = format!("-Wl,--version-script={}", versions.display());
            for (source, library, more) in [
                ("ibverbs.c", "libibverbs.so.1", None),
                ("mlx5.c", "libmlx5.so.1", Some(version_script.as_str())),
            ] {
                let output = compiler()
                    .args(["-Wall", "-Wextra", "-std=gnu11", "-shared", "-fPIC", "-o"])
                    .arg(folder.path().join(library))
                    .arg(sources.join(source))
                    .args(more)
                    .output()
                    .unwrap();
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{said}");
            }
            folder
        })
        .path()
}

/// The C compiler that `native/build.rs` finds, too, when this was built for another machine.
fn compiler() -> Command {
    let of_target = format!("CC_{}_unknown_linux_gnu", std::env::consts::ARCH);
    let named = std::env::var_os(of_target).or_else(|| std::env::var_os("CC"));
    Command::new(named.unwrap_or_else(|| "cc".into()))
}
