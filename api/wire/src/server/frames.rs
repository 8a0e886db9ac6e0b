//! WebSocket frames (RFC 6455, section 5): opcodes, the frames that this server sends, and the heads of
//! frames from clients.

/// Maximum length of the payload of a ping or a close (RFC 6455 §5.5).
pub(crate) const CONTROL_BYTES_MAX: usize = 125;

/// The opcodes of frames.
pub mod opcode {
    /// A further fragment of a message.
    pub const CONTINUATION: u8 = 0;
    /// The first fragment of a text message.
    pub const TEXT: u8 = 1;
    /// The first fragment of a binary message.
    pub const BINARY: u8 = 2;
    /// The last frame that an endpoint sends.
    pub const CLOSE: u8 = 8;
    /// A frame that asks for a pong.
    pub const PING: u8 = 9;
    /// The answer to a ping.
    pub const PONG: u8 = 10;
}

/// Status codes of a close frame (RFC 6455 §7.4.1).
pub mod close {
    /// The connection has served its purpose.
    pub const NORMAL: u16 = 1000;
    /// The peer broke the protocol.
    pub const PROTOCOL_ERROR: u16 = 1002;
    /// The server failed while it served the connection.
    pub const INTERNAL_ERROR: u16 = 1011;
}

/// The head of a frame from a client. Clients mask their payload.
#[derive(Clone, Copy, Debug)]
pub struct FrameHead {
    first: u8,
    is_masked: bool,
    /// Offset of the mask.
    mask_at: usize,
    /// Length of the payload in bytes.
    pub len: u64,
}

/// Length of a mask in bytes.
const MASK_BYTES: usize = 4;

impl FrameHead {
    /// Parses the head at the start of `buffer`, without its mask; `None` if more bytes must arrive.
    pub fn read(buffer: &[u8]) -> Option<FrameHead> {
        let (first, second) = (*buffer.first()?, *buffer.get(1)?);
        let number = |len: usize| -> Option<u64> {
            let bytes = buffer.get(2..2 + len)?;
            Some(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
        };
        let (len, mask_at) = match second & 0x7f {
            126 => (number(2)?, 4),
            127 => (number(8)?, 10),
            len => (u64::from(len), 2),
        };
        Some(FrameHead { first, is_masked: second & 0x80 != 0, mask_at, len })
    }

    /// Returns whether a client may send the frame. The frame must be masked and must not use extensions. A
    /// control frame must also be short and unfragmented.
    pub fn is_sound(&self) -> bool {
        let fits = !self.is_control() || self.is_final() && self.len <= CONTROL_BYTES_MAX as u64;
        self.is_masked && self.first & 0x70 == 0 && self.len >> 63 == 0 && fits
    }

    /// Returns the opcode. The module [`opcode`] has the opcodes that this server supports.
    pub fn code(&self) -> u8 {
        self.first & 0x0f
    }

    /// Returns whether the frame concerns the connection and not a message.
    pub fn is_control(&self) -> bool {
        self.first & 0x08 != 0
    }

    /// Returns whether the frame ends its message.
    pub fn is_final(&self) -> bool {
        self.first & 0x80 != 0
    }

    /// Returns the number of bytes before the payload, including the mask.
    pub fn bytes(&self) -> usize {
        self.mask_at + MASK_BYTES
    }

    /// Returns the mask in `buffer`, which starts with the head; `None` if more bytes must arrive.
    pub fn mask(&self, buffer: &[u8]) -> Option<[u8; MASK_BYTES]> {
        buffer.get(self.mask_at..self.bytes())?.try_into().ok()
    }
}

/// Returns one unmasked, final frame.
pub fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = frame_head(opcode, payload.len());
    out.extend_from_slice(payload);
    out
}

/// Returns the head of one unmasked, final frame.
pub fn frame_head(opcode: u8, len: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(len.min(CONTROL_BYTES_MAX) + 10);
    out.push(0x80 | opcode);
    match len {
        len @ 0..=125 => out.push(len as u8),
        len @ 126..=0xffff => {
            out.push(126);
            out.extend_from_slice(&(len as u16).to_be_bytes());
        }
        len => {
            out.push(127);
            out.extend_from_slice(&(len as u64).to_be_bytes());
        }
    }
    out
}

/// Returns a close frame with a status code.
pub fn close_frame(code: u16) -> Vec<u8> {
    frame(opcode::CLOSE, &code.to_be_bytes())
}
