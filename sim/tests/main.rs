//! The tests of foreread-sim's public interface as one binary, because linking is the slow part of a test build.

mod cited;
mod cliffs;
mod device_disks;
mod devices;
mod files;
mod network;
mod simulator;
