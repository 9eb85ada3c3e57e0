// What both pages need. The lab reads these times, which are of the machine's clock.
const now = () => performance.timeOrigin + performance.now();
const picked = () => globalThis.picked.files[0];
