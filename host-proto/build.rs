//! Generates the types and services of `guestagent.v1` without protoc.

use std::path::PathBuf;

use protox::prost::Message as _;

/// The contract's files, all in one package.
const FILES: [&str; 4] = ["agent", "exec", "process", "audit"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?).join("../proto");
    println!("cargo::rerun-if-changed={}", root.display());
    let files = FILES.map(|name| root.join(format!("guestagent/v1/{name}.proto")));
    let descriptors = protox::compile(files, [&root])?;
    let encoded = PathBuf::from(std::env::var("OUT_DIR")?).join("guestagent.v1.bin");
    std::fs::write(encoded, descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        .bytes(".")
        .build_client(cfg!(feature = "client"))
        .build_server(cfg!(feature = "server"))
        .compile_fds(descriptors)?;
    Ok(())
}
