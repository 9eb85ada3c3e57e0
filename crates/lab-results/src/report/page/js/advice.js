/* Which stack to use on another link: the answers that `headroom lab advise` gives, made when the report was. */

const MAX_ADVISED = 12;

function renderAdvice(body, report, counts) {
  const grid = record(JSON.parse(document.getElementById('advice-grid').textContent));
  const [rates, rtts, sizes, names] = [grid.rates_bps, grid.rtts_s, grid.sizes, grid.stacks].map(list);
  if (!rates.length || !rtts.length) return;
  const nearest = (values, wanted) => values.reduce((best, value, index) => (Math.abs(Math.log(value / wanted)) < Math.abs(Math.log(values[best] / wanted)) ? index : best), 0);
  const choice = {
    rate: nearest(rates, positive(report.mainLink.rate_bps) ?? 100e6),
    rtt: nearest(rtts, rttOf(report.mainLink) || 0.02),
    size: nearest(sizes, MIB),
  };
  const place = make('div', {});
  const draw = () => place.replaceChildren(...advice(grid, names, choice));
  const pick = (title, key, values, format) => {
    const select = make('select', { onchange: () => { choice[key] = Number(select.value); draw(); } },
      ...values.map((value, index) => make('option', { value: index, selected: index === choice[key] }, format(value))));
    return make('label', {}, title, select);
  };
  addTools(body, pick('Rate', 'rate', rates, formatRate), pick('Round trip', 'rtt', rtts, formatTime), pick('Download', 'size', sizes, formatSize));
  body.append(place);
  draw();
  counts.advised = list(grid.answers).filter((answer) => answer !== null).length;
  body.parentElement.hidden = false;
}

function advice(grid, names, choice) {
  const [rtts, sizes, inClear] = [grid.rtts_s, grid.sizes, list(grid.in_clear)];
  const places = list(list(grid.answers)[(choice.rate * rtts.length + choice.rtt) * sizes.length + choice.size]);
  if (!places.length) return [make('p', {}, 'This lies outside what the run measured.')];
  const name = ([stack]) => `${asText(names[stack])}${inClear[stack] === true ? ' (in clear)' : ''}`;
  const first = places.filter(([, rank]) => rank === 1), next = places.find(([, rank]) => rank > 1);
  const [, , , seconds, low, high] = first[0];
  const verdict = `${first.map(name).join(', ')}${first.length > 1 ? ' tie' : ''}: ${formatTime(seconds)}, 95 % of sessions ${formatTime(low)} to ${formatTime(high)}`;
  const then = next ? `; next ${name(next)}, ${format3(100 * (next[3] / seconds - 1))} % longer.` : '.';
  const rows = places.slice(0, MAX_ADVISED).map((place) => make('tr', {},
    make('td', {}, `${place[1]}${place[2] ? '=' : ''}`), rowHead(name(place)), make('td', {}, formatTime(place[3])),
    make('td', {}, `${formatTime(place[4])} to ${formatTime(place[5])}`)));
  const head = make('thead', {}, make('tr', {}, columnHead('Rank'), columnHead('Stack', { class: 'text' }), columnHead('Session, predicted'), columnHead('95 % of sessions')));
  const more = places.length > rows.length ? ` ${places.length - rows.length} slower ones are not shown.` : '';
  const ties = places.some(([, , tied]) => tied) ? ' Ranks with = tie: the errors of the prediction do not tell these stacks apart.' : '';
  const missing = names.filter((_, stack) => !places.some(([known]) => known === stack)).map(asText);
  const without = missing.length ? ` Not predicted here: ${missing.join(', ')}.` : '';
  const foreign = grid.foreign_intervals === true ? ' This run has too few links for intervals of its own: they are those of the run that comes with the program.' : '';
  const note = make('p', {}, `Predicted for one client and no loss.${ties}${foreign}${more}${without} Other links, loss, many files and the arithmetic: `,
    make('code', {}, 'headroom lab advise --from FOLDER'), ' with the folder of this page.');
  const all = make('div', {}, make('table', { class: 'advice' }, head, make('tbody', {}, ...rows)), note);
  return [make('p', {}, verdict, then), folded('All stacks', all)];
}
