/* What the file holds, taken as what it should be: anything may be missing or of another kind. */

function record(value) {
  return value !== null && typeof value === 'object' && !Array.isArray(value) ? value : {};
}

function list(value) {
  return Array.isArray(value) ? value : [];
}

function records(value) {
  return list(value).filter((item) => item !== null && typeof item === 'object' && !Array.isArray(item));
}

function number(value) {
  return typeof value === 'number' && Number.isFinite(value) ? value : null;
}

function positive(value) {
  return number(value) !== null && value > 0 ? value : null;
}

function asText(value) {
  if (value === null || value === undefined) return '–';
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  if (Array.isArray(value)) return value.map(asText).join(', ');
  if (typeof value === 'object') return Object.entries(value).map(([name, inner]) => `${readable(name)} ${asText(inner)}`).join(' · ');
  return String(value);
}

function groupBy(items, keyOf) {
  const groups = new Map();
  for (const item of items) groups.set(keyOf(item), [...(groups.get(keyOf(item)) ?? []), item]);
  return groups;
}

/** At most `most` of the values: the ends, and evenly between them. */
function spacedChoice(values, most) {
  if (values.length <= most) return values;
  return Array.from({ length: most }, (_, position) => values[Math.round(position * (values.length - 1) / (most - 1))]);
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b), middle = Math.floor(sorted.length / 2);
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}
