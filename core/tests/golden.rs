//! The golden tables of the policies.

use crate::golden_tables::golden;

golden! {
    linux_6_18: linux, "linux-6.18.txt", 60;
    hints: linux, "hints.txt", 1;
    linux_6_18_folios: linux, "linux-6.18-folios.txt", 85;
    rbd_plain: rbd, "rbd-plain.txt", 60;
    rbd_aligned: rbd, "rbd-aligned.txt", 110;
    rbd_eager: rbd, "rbd-eager.txt", 11;
    auto: linux, "auto.txt", 12;
}
