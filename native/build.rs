//! Compiles the C layer in `native/` when the feature `rdma` is on. It needs a C compiler and the
//! rdma-core headers (Debian and Ubuntu: `libibverbs-dev`); no library is linked.

fn main() {
    #[cfg(feature = "rdma")]
    {
        println!("cargo::rerun-if-changed=native");
        cc::Build::new()
            .file("native/verbs.c")
            .file("native/mlx5.c")
            .file("native/memory.c")
            .std("gnu11")
            .warnings(true)
            .extra_warnings(true)
            // Headers and compilers newer than ours may warn; that must not stop a user's build.
            .warnings_into_errors(false)
            .compile("hairpin_mesh_verbs");
    }
}
