/* What a download takes on another link, predicted from the portable costs. The formulas, their names and
   their sources are those of crates/lab-results/src/analysis/predict.rs and slow_start.rs; a test in a browser
   holds both to the same figures. */

const INITIAL_SEGMENTS = 10; // RFC 6928
const LEAST_TIMEOUT_S = 0.2; // Linux

/** Why a stack's row cannot be carried to another link: the figures that it lacks. */
function missingFigures(row) {
  return ['round_trips', 'work_s', 'line_bytes_per_byte'].filter((key) => number(row[key]) === null);
}

/** Of a row without missing figures. `seconds_per_byte` null: unknown, and taken to be hidden by the link. */
function costsOf(row) {
  const seconds_per_gb = positive(row.seconds_per_gb);
  return {
    round_trips: row.round_trips + (number(row.round_trips_after) ?? 0), work_s: row.work_s, line_bytes_per_byte: row.line_bytes_per_byte,
    seconds_per_byte: seconds_per_gb === null ? null : seconds_per_gb / 1e9,
    window_bytes: positive(row.window_bytes),
  };
}

/** Bytes of TCP payload in a full packet: the MTU less IP's header and TCP's with time stamps. */
function segmentBytes(plan) {
  return Math.max(1, (number(plan.mtu) ?? 1500) - (plan.family === 'ipv4' ? 20 : 40) - 32);
}

/** What client, server and router take of each round trip, wherever they are. */
function nearSeconds(mainLink) {
  return Math.max(0, (rttOf(mainLink) ?? 0) - 2 * (number(mainLink.delay_ms) ?? 0) / 1e3);
}

/** A link as the prediction sees it: `loss` is the share of packets lost at random each way, `rate_bps` null is no limit. */
function predictedLink(report, link) {
  return {
    rate_bps: positive(link.rate_bps), rtt_s: nearSeconds(report.mainLink) + 2 * (number(link.delay_ms) ?? 0) / 1e3,
    loss: (number(link.loss_pct) ?? 0) / 100, segment_bytes: segmentBytes(report.plan),
  };
}

/** Seconds of a session that downloads one file. */
function predictSeconds(costs, link, bytes) {
  return costs.round_trips * link.rtt_s + costs.work_s + bodySeconds(costs, link, bytes) + setupTimeouts(costs, link);
}

function bodySeconds(costs, link, bytes) {
  const onLink = link.rate_bps === null ? Infinity : link.rate_bps / 8 / costs.line_bytes_per_byte;
  const worked = costs.seconds_per_byte === null ? Infinity : 1 / costs.seconds_per_byte;
  const windowed = costs.window_bytes === null || link.rtt_s <= 0 ? Infinity : costs.window_bytes / link.rtt_s;
  const bytes_per_s = Math.min(onLink, worked, windowed);
  const path = { bytes_per_s, rtt_s: link.rtt_s, segment_bytes: link.segment_bytes };
  const unhindered = (part) => part / bytes_per_s + slowStartWaits(path, part);
  if (link.loss <= 0) return unhindered(bytes);
  const segments = Math.ceil(bytes / link.segment_bytes);
  const anyLost = 1 - (1 - link.loss) ** segments;
  const first = Math.min(anyLost * (1 - link.loss) / link.loss + 1, segments);
  const firstBytes = Math.min(first * link.segment_bytes, bytes);
  const lossy = cubicWindow(link.rtt_s, link.loss) * link.segment_bytes / link.rtt_s;
  return unhindered(firstBytes) + anyLost * link.rtt_s + (bytes - firstBytes) / Math.min(bytes_per_s, lossy);
}

/** Average congestion window in segments under random loss. */
function cubicWindow(rtt_s, loss) {
  return Math.max(1.054 * (rtt_s / loss) ** 0.75, Math.sqrt(1.5 / loss));
}

function setupTimeouts(costs, link) {
  return costs.round_trips * 2 * link.loss * (LEAST_TIMEOUT_S + link.rtt_s);
}

/** Seconds in which a sender of `bytes` waits for its window to grow; `bytes_per_s` may be infinite. */
function slowStartWaits({ bytes_per_s, rtt_s, segment_bytes }, bytes) {
  let congestionWindow = INITIAL_SEGMENTS * segment_bytes, sent = 0, waits = 0;
  for (let round = 0; round < 64; round++) {
    sent += congestionWindow;
    const sending = congestionWindow / bytes_per_s, firstAcknowledged = rtt_s + segment_bytes / bytes_per_s;
    if (sent >= bytes || sending >= firstAcknowledged) break;
    waits += firstAcknowledged - sending;
    congestionWindow *= 2;
  }
  return waits;
}

/** The main link's word on others counts only while it loses nothing itself and has one rate, or none. */
function canPredict(report) {
  return rttOf(report.mainLink) !== null && !positive(report.mainLink.loss_pct) && !followsTrace(report.mainLink);
}

/** What loss does is known of CUBIC only. */
function canPredictLoss(report) {
  const own = Object.keys(record(report.plan.congestion_controls));
  return report.plan.congestion_control === 'cubic' && own.length === 0;
}
