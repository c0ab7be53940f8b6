//! Tests `foreread check store` against a bucket that keeps its promises, and against a server that does not.

use foreread::source::Mem;
use foreread_testing::{BucketServer, Lie, RangeServer, pattern};
use std::process::{Command, Output};

fn check(variables: &[(String, String)], args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foreread-check"));
    command
        .env_clear()
        .env("FOREREAD_OBJECT", "retries=0")
        .envs(variables.iter().cloned());
    command.arg("store").args(args).output().expect("runs")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_bucket_that_keeps_its_promises_passes() {
    let server = BucketServer::start().expect("a port");
    server.put("dir/large", pattern(0, 3 << 20, 0));
    server.put("dir/a b", pattern(0, 10, 0));
    let keys = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"];
    let mut variables = server.variables();
    variables.extend(keys.map(|name| (name.to_string(), "key".to_string())));
    let output = check(&variables, &["s3://bucket/dir/"]);
    let text = stdout(&output);
    assert!(
        output.status.success(),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for line in [
        "s3://bucket/dir/ passes all 7 tests.",
        "its names can be listed: 2 names, 2 files",
        "by ETag; 3145728 bytes",
        "credentials: the variable AWS_ACCESS_KEY_ID",
    ] {
        assert!(text.contains(line), "{line}:\n{text}");
    }
    let output = check(
        &server.variables(),
        &["s3://bucket/dir/large", "--bytes", "1M", "--json", "-"],
    );
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["schema"], "foreread/check-store/1");
    assert_eq!(json["checks"].as_array().map(Vec::len), Some(4));
    assert!(
        json["bytes"].as_u64().is_some_and(|bytes| bytes < 2 << 20),
        "the limit: {json}"
    );
}

#[test]
fn a_server_that_breaks_one_fails_it_by_name() {
    let server = RangeServer::start(Mem::new(pattern(0, 1 << 20, 0))).expect("a port");
    server.lie(Lie::ContentRange, u64::MAX);
    let output = check(&[], &[&server.url()]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && error.contains("a different part"),
        "{error}"
    );
}
