// Errors of transfers. `code` is one of unauthorized, refused, lost, changed, exists, no-space,
// not-found, protocol, or a code of the server's refusals (ErrorCode in the protocol): read-only,
// invitation, share-ended, share-used, not-shared. `message` is for people, and may quote the server: show it as text.

export class TransferError extends Error {
  constructor(code, message) {
    super(message);
    this.name = 'TransferError';
    this.code = code;
  }
}

// Returns the code of a sentence about a file.
export function codeOf(reason) {
  if (/no space|quota|disk is full|disc full/i.test(reason)) return 'no-space';
  if (/no such file|is missing|does not exist/i.test(reason)) return 'not-found';
  if (/exists/i.test(reason)) return 'exists';
  if (/changed/i.test(reason)) return 'changed';
  return 'refused';
}

// Makes the error of a transfer that was aborted by its signal.
export function aborted(signal) {
  return signal.reason instanceof Error ? signal.reason : new DOMException('aborted', 'AbortError');
}
