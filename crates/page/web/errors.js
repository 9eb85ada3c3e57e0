// Errors of transfers. `code` is one of unauthorized, refused, lost, changed, exists, no-space,
// not-found, protocol, superseded, or a code of the server's refusals (ErrorCode in the protocol): read-only,
// invitation, share-ended, share-used, not-shared. `message` is for people, and may quote the server: show it as text.

export class TransferError extends Error {
  constructor(code, message) {
    super(message);
    this.name = 'TransferError';
    this.code = code;
  }
}

// Returns the code of what was thrown about a file of this computer.
export function codeOf(error) {
  const local = { QuotaExceededError: 'no-space', NotFoundError: 'not-found' };
  return local[error.name] ?? (error instanceof TransferError ? error.code : 'refused');
}

// Makes the error of a transfer that was aborted by its signal.
export function aborted(signal) {
  return signal.reason instanceof Error ? signal.reason : new DOMException('aborted', 'AbortError');
}
