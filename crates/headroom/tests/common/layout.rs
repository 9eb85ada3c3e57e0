//! Where the parts of a report lie: on a desktop, on a telephone, on paper.

use std::path::Path;

use super::Ground;
use super::browser::{attribute, rendered};

/// Finds what lies outside the page or over something else, in a page of the report.
const PROBE: &str = r#"
const problems = [];
const page = document.documentElement.clientWidth;
const box = (element) => element.getBoundingClientRect();
const name = (element) => `${element.tagName} "${element.textContent.slice(0, 40)}"`;
const shown = (element) => element.checkVisibility() && box(element).width > 0;
const scrolls = (element) => PLACE !== 'paper' && element.closest('.scroll') !== null;
const hit = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
for (const element of document.querySelectorAll('main *, header *')) {
  if (!shown(element) || scrolls(element) || element.closest('.hidden-visually, dialog, pre')) continue;
  if (box(element).right > page + 1 || box(element).left < -1) problems.push(`${name(element)} lies from ${box(element).left} to ${box(element).right} of ${page}`);
}
const apart = (elements) => elements.forEach((one, nth) => elements.slice(nth + 1).forEach((other) => {
  if (hit(box(one), box(other))) problems.push(`${name(one)} and ${name(other)} overlap`);
}));
for (const plot of document.querySelectorAll('.plot svg')) apart([...plot.querySelectorAll('text')].filter(shown));
for (const strips of document.querySelectorAll('.strips')) {
  const texts = [...strips.querySelectorAll('.name, .total, .strip span')].filter((span) => shown(span) && span.textContent);
  texts.forEach((one, nth) => texts.slice(nth + 1).forEach((other) => {
    const inside = [one, other].map((text) => text.scrollWidth > text.clientWidth + 1 && text.className !== 'beside');
    if (!inside.some(Boolean) && hit(box(one), box(other))) problems.push(`${name(one)} and ${name(other)} overlap`);
  }));
}
const plots = document.querySelectorAll('.plot canvas'), tables = [...document.querySelectorAll('table')].filter(shown);
if (!plots.length || !tables.length) problems.push('no picture or no table');
else if (tables.some((table) => box(table).top < box(plots[0]).bottom)) problems.push('a table stands before the main picture');
const headings = [...document.querySelectorAll('main h2')].map((heading) => heading.textContent);
if (headings.indexOf('How well the models fit') < headings.indexOf('Machine and programs')) problems.push('residuals stand before the tables');
const residuals = box(document.getElementById('fit')).top;
if (tables.some((table) => !table.closest('#fit') && box(table).top > residuals)) problems.push('a table stands after the residuals');
// a canvas has no text: the name of the axis is in what the picture is called
const drawing = document.querySelector('.plot [role=img]')?.getAttribute('aria-label') ?? '';
if (!drawing.startsWith('Overhead (symmetric-log scale)')) problems.push(`the picture is called ${drawing.slice(0, 60)}`);
if (PLACE === 'desktop' && box(plots[0]).top > 600) problems.push(`the main picture begins at ${box(plots[0]).top}`);
if (PLACE === 'telephone') {
  for (const pct of [...document.querySelectorAll('.cost .pct')].filter((cell) => cell.closest('td').cellIndex === 1)) {
    if (box(pct).right > page) problems.push(`the overhead ${pct.textContent} is hidden`);
  }
}
if (PLACE === 'paper') {
  const controls = document.querySelectorAll('input, select, nav, summary, form button, .tools button, .save button');
  for (const control of controls) if (shown(control)) problems.push(`${name(control)} is on paper`);
  if (!/File size: /.test(document.querySelector('#picture .choices')?.textContent ?? '')) problems.push('what was chosen is not on paper');
}
// many links at one rate: their names do not collide
const labels = siteLabels(['unshaped (ftp)', 'unshaped (http)', '1gbit', 'a link of a long name', 'z'].map((site, nth) => [site, 480 + 5 * nth]), { width: 520 });
labels.forEach((one, nth) => labels.slice(nth + 1).forEach((other) => {
  if (one.row === other.row && !isApart(one, other)) problems.push(`the links ${one.text} and ${other.text} collide`);
}));
if (labels.flatMap((label) => label.names).length !== 5) problems.push('a link has no name');
parent.postMessage(problems.slice(0, 8).join('; ') || 'nothing', '*');
"#;

/// Fails where a part of the report in `folder` lies outside the page or over another one.
pub(crate) fn assert_fits(ground: &Ground, browser: &Path, folder: &str) {
    let page = std::fs::read_to_string(ground.path(folder).join("report.html")).expect("a page");
    let paper = page
        .replace("@media print {", "@media all {")
        .replace("(prefers-color-scheme: dark)", "(max-width: 1px)");
    // A4 and Letter without their margins are 703 and 725 wide
    for (place, width, page) in
        [("desktop", 1400, &page), ("telephone", 400, &page), ("paper", 703, &paper)]
    {
        let print = if place == "paper" { "dispatchEvent(new Event('beforeprint'));" } else { "" };
        // when observers of sizes have been called
        let script = format!(
            "<script>{print} setTimeout(() => {{ const PLACE = '{place}'; {PROBE} }}, 500);</script>"
        );
        let (before, after) = page.rsplit_once("</body>").expect("the end of the page");
        let name = format!("{folder}-{place}");
        std::fs::create_dir(ground.path(&name)).expect("a folder");
        ground.write(&format!("{name}/probed.html"), &format!("{before}{script}</body>{after}"));
        // a browser's window may be no narrower than 500, a frame may
        let frame = format!(
            "<!doctype html><html><script>addEventListener('message', (event) => {{ \
             document.documentElement.dataset.problems = event.data; }});</script>\
             <iframe src=\"probed.html\" style=\"width: {width}px; height: 900px; border: 0\"></iframe></html>"
        );
        ground.write(&format!("{name}/report.html"), &frame);
        let found = attribute(&rendered(ground, browser, &name), "data-problems");
        assert_eq!(found.as_deref(), Some("nothing"), "{place}");
    }
}
