// Names as text and as bytes, without loss: bytes that are not UTF-8 become lone surrogates
// U+DC80 to U+DCFF, as Python does it.

const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
const encoder = new TextEncoder();

// The length of the UTF-8 sequence at `i`, 0 if there is none.
function sequence(bytes, i) {
  const first = bytes[i];
  const length = first < 0x80 ? 1 : first >= 0xc2 && first < 0xe0 ? 2 : first >= 0xe0 && first < 0xf0 ? 3 : first >= 0xf0 && first < 0xf5 ? 4 : 0;
  if (length === 0 || i + length > bytes.length) return 0;
  try {
    decoder.decode(bytes.subarray(i, i + length));
    return length;
  } catch {
    return 0;
  }
}

export function toText(bytes) {
  try {
    return decoder.decode(bytes);
  } catch {
    let text = '';
    for (let i = 0; i < bytes.length;) {
      const length = sequence(bytes, i);
      if (length === 0) text += String.fromCharCode(0xdc00 + bytes[i++]);
      else {
        text += decoder.decode(bytes.subarray(i, i + length));
        i += length;
      }
    }
    return text;
  }
}

export function toBytes(text) {
  if (text.isWellFormed?.() ?? !/[\ud800-\udfff]/.test(text)) return encoder.encode(text);
  const parts = [];
  for (const char of text) {
    const code = char.codePointAt(0);
    if (code >= 0xdc80 && code <= 0xdcff) parts.push(code - 0xdc00);
    else parts.push(...encoder.encode(char));
  }
  return new Uint8Array(parts);
}

export const joined = (directory, name) => directory === '' || directory === '/' ? name : `${directory.replace(/\/+$/, '')}/${name}`;
