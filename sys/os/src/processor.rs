//! Who made this processor.

use std::sync::OnceLock;

/// Whether this is a processor of Intel's.
#[must_use]
pub fn is_intel() -> bool {
    maker() == *b"GenuineIntel"
}

/// Whether this is a processor of AMD's, or one of Hygon's, which are of the same design.
#[must_use]
pub fn is_amd() -> bool {
    matches!(&maker(), b"AuthenticAMD" | b"HygonGenuine")
}

/// The name of the processor's maker, as it gives it; zeros where it gives none. It is asked once:
/// in a virtual machine the instruction takes as long as a system call, or longer.
fn maker() -> [u8; 12] {
    static MAKER: OnceLock<[u8; 12]> = OnceLock::new();
    *MAKER.get_or_init(|| {
        #[cfg(target_arch = "x86_64")]
        let words = {
            let id = std::arch::x86_64::__cpuid(0);
            [id.ebx, id.edx, id.ecx]
        };
        #[cfg(not(target_arch = "x86_64"))]
        let words = [0_u32; 3];
        let mut name = [0; 12];
        for (bytes, word) in name.chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        name
    })
}
