// Both ends of a transfer by a data channel of WebRTC. The lab passes on what two pages have to
// tell each other before they are connected. The clock begins where a button would be pressed:
// the page is loaded, and the transfer makes its own connection. A download goes to the
// browser's own storage, written by a worker at once as it arrives.
const CHUNK = 64 << 10; // bytes of a message
const PIECE = 1 << 20; // bytes that are read from a file at once
const LOW = 1 << 20; // more is written to the channel when no more than this waits there,
const HIGH = 8 << 20; // and none when more than this does

const sink = async () => {
  const work = async () => {
    const root = await navigator.storage.getDirectory();
    const file = await (await root.getFileHandle('lab', { create: true })).createSyncAccessHandle();
    file.truncate(0);
    let at = 0;
    onmessage = ({ data }) => {
      try {
        if (data) {
          at += file.write(data, { at });
          return;
        }
        file.flush();
        file.close();
        postMessage({ bytes: at });
      } catch (error) {
        postMessage({ error: String(error) });
      }
    };
    postMessage({});
  };
  const failed = 'error => postMessage({ error: String(error) })';
  const source = new Blob([`(${work})().catch(${failed})`], { type: 'text/javascript' });
  const worker = new Worker(URL.createObjectURL(source));
  const answer = () => new Promise((resolve, reject) => {
    worker.onmessage = ({ data }) => data.error ? reject(new Error(data.error)) : resolve(data);
    worker.onerror = event => reject(new Error(event.message));
  });
  await answer();
  return {
    write: buffer => worker.postMessage(buffer, [buffer]),
    end: async wanted => {
      const ended = answer();
      worker.postMessage(null);
      const { bytes } = await ended;
      if (bytes !== wanted) throw new Error(`${bytes} of ${wanted} bytes were stored`);
    },
    stop: () => worker.terminate(),
  };
};

// Returns a function that is told how many bytes there are, and resolves when they have come.
const receiver = (channel, storage) => {
  let at = 0;
  let total = Infinity;
  let finish;
  const all = new Promise(resolve => { finish = resolve; });
  const look = () => { if (at >= total) finish(); };
  channel.binaryType = 'arraybuffer';
  channel.onmessage = ({ data }) => {
    at += data.byteLength;
    storage.write(data);
    look();
  };
  return bytes => {
    total = bytes;
    look();
    return all;
  };
};

const message = channel => new Promise(resolve => { channel.onmessage = resolve; });

const send = async (channel, file) => {
  channel.bufferedAmountLowThreshold = LOW;
  for (let from = 0; from < file.size; from += PIECE) {
    const piece = await file.slice(from, from + PIECE).arrayBuffer();
    for (let at = 0; at < piece.byteLength; at += CHUNK) {
      if (channel.bufferedAmount > HIGH) {
        await new Promise(resolve => { channel.onbufferedamountlow = resolve; });
      }
      channel.send(new Uint8Array(piece, at, Math.min(CHUNK, piece.byteLength - at)));
    }
  }
};

const gathered = async connection => {
  await new Promise(resolve => {
    const look = () => { if (connection.iceGatheringState === 'complete') resolve(); };
    connection.addEventListener('icegatheringstatechange', look);
    look();
  });
  const { sdp } = connection.localDescription;
  if (!sdp.includes('a=candidate:')) throw new Error('the browser finds no address of this host');
  return sdp;
};

const open = channel => new Promise(resolve => {
  if (channel.readyState === 'open') resolve();
  channel.addEventListener('open', resolve);
});

// Returns a promise that only ever rejects.
const broken = (connection, channel) => {
  const end = new Promise((_, reject) => {
    channel?.addEventListener('close', () => reject(new Error('the data channel has closed')));
    connection.addEventListener('connectionstatechange', () => {
      if (connection.connectionState === 'failed') reject(new Error('the peers do not reach each other'));
    });
  });
  end.catch(() => {});
  return end;
};

// Returns the address of this host that the connection uses; null where the browser does not say.
const used = connection => {
  const pair = connection.sctp?.transport?.iceTransport?.getSelectedCandidatePair?.();
  return pair?.local?.address ?? null;
};

let session = {};

globalThis.webrtc = {
  // The client's first half.
  offer: async ({ upload }) => {
    const storage = upload ? null : await sink();
    const start_ms = now();
    const connection = new RTCPeerConnection();
    const channel = connection.createDataChannel('file');
    const arrived = upload ? message(channel) : receiver(channel, storage);
    session = { connection, channel, storage, arrived, end: broken(connection, channel) };
    await connection.setLocalDescription(await connection.createOffer());
    return { start_ms, offer: await gathered(connection), bytes: upload ? picked().size : 0 };
  },
  // Its second half.
  finish: async ({ answer, bytes, upload }) => {
    const { connection, channel, storage, arrived, end } = session;
    await connection.setRemoteDescription({ type: 'answer', sdp: answer });
    const move = async () => {
      if (upload) {
        await open(channel);
        await send(channel, picked());
        await arrived;
        return now();
      }
      await arrived(bytes);
      await storage.end(bytes);
      const done_ms = now();
      await open(channel); // an empty file is stored before
      channel.send('stored');
      return done_ms;
    };
    return { done_ms: await Promise.race([move(), end]), bytes, address: used(connection) };
  },
  // The peer's first half.
  answer: async ({ offer, bytes, upload }) => {
    const storage = upload ? await sink() : null;
    const connection = new RTCPeerConnection();
    const opened = new Promise(resolve => {
      connection.ondatachannel = ({ channel }) => {
        const arrived = upload ? receiver(channel, storage) : message(channel);
        resolve({ channel, arrived, end: broken(connection, channel) });
      };
    });
    session = { connection, storage, opened, end: broken(connection) };
    await connection.setRemoteDescription({ type: 'offer', sdp: offer });
    await connection.setLocalDescription(await connection.createAnswer());
    return { answer: await gathered(connection), bytes: upload ? bytes : picked().size };
  },
  // Its second half.
  serve: async ({ bytes, upload }) => {
    const { connection, storage, opened, end } = session;
    const { channel, arrived, end: closed } = await Promise.race([opened, end]);
    const move = async () => {
      await open(channel);
      if (upload) {
        await arrived(bytes);
        await storage.end(bytes);
        channel.send('stored');
      } else {
        await send(channel, picked());
        await arrived;
      }
    };
    await Promise.race([move(), closed]);
    return { address: used(connection) };
  },
  // Makes the peer ready for another transfer.
  clear: async () => {
    session.connection?.close();
    session.storage?.stop();
    const stored = Boolean(session.storage);
    session = {};
    if (!stored) return;
    const root = await navigator.storage.getDirectory();
    // a worker that was stopped may still hold the file for a moment
    for (let tries = 1; ; tries += 1) {
      try {
        await root.removeEntry('lab');
        return;
      } catch (error) {
        if (tries === 50) throw error;
        await new Promise(resolve => { setTimeout(resolve, 100); });
      }
    }
  },
};
