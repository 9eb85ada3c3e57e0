//! Reads fields from borrowed bytes.

use super::Problem;

/// The bytes that were not read yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn rest(self) -> &'a [u8] {
        self.0
    }

    pub(super) fn bytes(&mut self, len: usize) -> Result<&'a [u8], Problem> {
        let (head, tail) = self.0.split_at_checked(len).ok_or(Problem::Truncated)?;
        self.0 = tail;
        Ok(head)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Problem> {
        let (head, tail) = self.0.split_first_chunk().ok_or(Problem::Truncated)?;
        self.0 = tail;
        Ok(*head)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Problem> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Problem> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Problem> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Problem> {
        self.array().map(u64::from_be_bytes)
    }

    /// Reads a substructure whose 16-bit length field was just read and counts `fixed` bytes before
    /// its variable part, including those.
    pub(super) fn counted(&mut self, length: u16, fixed: usize) -> Result<Self, Problem> {
        let length = usize::from(length);
        let body = length.checked_sub(fixed).ok_or(Problem::Length(length))?;
        self.bytes(body).map(Self).map_err(|_| Problem::Length(length))
    }
}
