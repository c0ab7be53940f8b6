//! Compiles the protocol of CSI: by protox, so that a build needs no protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = "proto/csi.proto";
    println!("cargo:rerun-if-changed={file}");
    tonic_prost_build::configure()
        // A client is for tests, which have the feature that `connect` needs and do not use it.
        .build_transport(false)
        .compile_well_known_types(false)
        .compile_fds(protox::compile([file], ["proto"])?)?;
    Ok(())
}
