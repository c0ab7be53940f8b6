//! The mapping of another process, read ahead from here.

use crate::files::cold;
use foreread_pagecache::{process::Process, readahead, resident};
use std::io::{Read, Write};
use std::process::{Command, Stdio};

const PYTHON: &str = "import mmap, sys
f = open(sys.argv[1], 'rb')
m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
print('ready', flush=True)
sys.stdin.read()";

#[test]
fn pages_of_a_mapping_of_another_process_are_read() {
    let Some((kept, file)) = cold(4 << 20) else {
        return;
    };
    let path = kept.path().to_str().expect("a name");
    let program = Command::new("python3")
        .args(["-c", PYTHON, path])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut program) = program else {
        eprintln!("skipped: needs python3");
        return;
    };
    let mut ready = [0; 6];
    program
        .stdout
        .take()
        .expect("a pipe")
        .read_exact(&mut ready)
        .expect("it maps");
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", program.id())).expect("its maps");
    let line = maps
        .lines()
        .find(|line| line.ends_with(path))
        .expect("the mapping");
    let (start, rest) = line.split_once('-').expect("an address");
    let number = |text: &str| usize::from_str_radix(text, 16).expect("a number");
    let range = number(start)..number(rest.split(' ').next().expect("an end"));
    let len = 1 << 20;
    let process = Process::open(program.id()).expect("a descriptor");
    let first = range.start..range.start + len;
    match process.will_need(std::slice::from_ref(&first)) {
        // Without CAP_SYS_NICE, or where a filter of system calls forbids it.
        Err(error) if [Some(libc::EPERM), Some(libc::ENOSYS)].contains(&error.raw_os_error()) => {
            eprintln!("skipped: needs root: {error}");
        }
        answer => {
            assert_eq!(answer.expect("the advice is taken"), len);
            let read = len.min(readahead::piece_bytes(&file) as usize) as u64;
            assert_eq!(
                resident::cached(&file, &(0..read)).expect("asked"),
                Some(read)
            );
            assert!(
                process.will_need(std::slice::from_ref(&(0..4096))).is_err(),
                "nothing is mapped at 0"
            );
        }
    }
    program.stdin.take().expect("a pipe").flush().expect("open");
    program.wait().expect("it ends");
    assert!(process.will_need(&[range]).is_err(), "it has ended");
}

#[test]
fn a_number_of_no_process_is_an_error() {
    assert!(Process::open(0).is_err());
    assert!(Process::open(u32::MAX).is_err());
}
