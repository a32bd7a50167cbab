//! Blocks: pieces of a file with a length and a checksum.
//!
//! | bytes | contents |
//! |---|---|
//! | 1 | kind |
//! | 4 | number of records |
//! | 4 | length of the contents |
//! | 4 | checksum of these nine bytes and the contents (CRC-32 of IEEE 802.3) |
//! | length | contents |
//!
//! Numbers of four bytes have the lowest byte first.

/// Length of a block before its contents.
pub(crate) const FRAME_BYTES: usize = 13;

/// Kinds of blocks.
pub(crate) mod kind {
    pub(crate) const HEADER: u8 = 1;
    pub(crate) const UPKEEPS: u8 = 2;
    pub(crate) const BURSTS: u8 = 3;
    pub(crate) const FLUSHES: u8 = 4;
    pub(crate) const STAT_READS: u8 = 5;
    pub(crate) const WAITS: u8 = 6;
    pub(crate) const CPU_CHANGES: u8 = 7;
    pub(crate) const NAMES: u8 = 8;
    pub(crate) const END: u8 = 9;
}

const CRC_TABLE: [u32; 256] = {
    /// The polynomial, its bits in reverse.
    const POLYNOMIAL: u32 = 0xedb8_8320;
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = crc >> 1 ^ (POLYNOMIAL & (crc & 1).wrapping_neg());
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

fn crc(parts: [&[u8]; 2]) -> u32 {
    let bytes = parts.into_iter().flatten();
    !bytes.fold(!0, |crc, byte| {
        crc >> 8 ^ CRC_TABLE[(crc as u8 ^ byte) as usize]
    })
}

/// Head of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) records: u32,
    pub(crate) bytes: u32,
    crc: u32,
}

impl Frame {
    /// The frame of contents, which must be shorter than 4 GiB.
    pub(crate) fn of(kind: u8, records: u32, contents: &[u8]) -> Self {
        let mut frame = Self {
            kind,
            records,
            bytes: contents.len() as u32,
            crc: 0,
        };
        frame.crc = crc([&frame.to_bytes()[..9], contents]);
        frame
    }

    pub(crate) fn to_bytes(self) -> [u8; FRAME_BYTES] {
        let mut bytes = [self.kind; FRAME_BYTES];
        bytes[1..5].copy_from_slice(&self.records.to_le_bytes());
        bytes[5..9].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[9..].copy_from_slice(&self.crc.to_le_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: [u8; FRAME_BYTES]) -> Self {
        let four = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        Self {
            kind: bytes[0],
            records: four(1),
            bytes: four(5),
            crc: four(9),
        }
    }

    pub(crate) fn fits(self, contents: &[u8]) -> bool {
        crc([&self.to_bytes()[..9], contents]) == self.crc
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_one_of_ieee_802_3() {
        assert_eq!(crc([b"1234", b"56789"]), 0xcbf4_3926);
    }

    #[test]
    fn a_frame_fits_its_contents_and_no_others() {
        let frame = Frame::of(kind::BURSTS, 3, b"contents");
        assert_eq!(Frame::from_bytes(frame.to_bytes()), frame);
        assert!(frame.fits(b"contents"));
        assert!(!frame.fits(b"contenst"));
        let other = Frame {
            records: 4,
            ..frame
        };
        assert!(!other.fits(b"contents"));
    }
}
