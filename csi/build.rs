//! Compiles the protobuf definition of CSI with the crate protox, so that a build does not need the program protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = "proto/csi.proto";
    println!("cargo:rerun-if-changed={file}");
    tonic_prost_build::configure()
        // A client is for tests, which have the feature that `connect` needs and do not use it.
        .build_transport(false)
        // A call that the plugin does not offer is answered with UNIMPLEMENTED.
        .generate_default_stubs(true)
        .compile_well_known_types(false)
        .compile_fds(protox::compile([file], ["proto"])?)?;
    Ok(())
}
