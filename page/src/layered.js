// A directed graph without cycles, drawn from top to bottom (Sugiyama, Tagawa & Toda 1981): levels, order within them, places.
const SWEEPS = 8;
const [ACROSS, DOWN, THIN] = [16, 24, 10]; // between boxes, between levels, and how wide an edge is that passes a level

// nodes: [{name, inputs}], each after those that it has as inputs. {width, height, at: {name: {x, y}}, edges: [[{x, y}, ...]]}
export function layered(nodes, boxWidth, boxHeight) {
  const boxes = new Map();
  const levels = [];
  const put = (level, width) => { const made = { level, width, above: [], below: [], x: 0 }; (levels[level] ??= []).push(made); return made; };
  const link = (from, to) => { from.below.push(to); to.above.push(from); };
  const edges = [];
  for (const { name, inputs } of nodes) {
    const sources = inputs.filter((one) => boxes.has(one)).map((one) => boxes.get(one));
    const box = put(1 + Math.max(-1, ...sources.map(({ level }) => level)), boxWidth);
    boxes.set(name, box);
    for (const from of sources) {
      const path = [from];
      for (let level = from.level + 1; level < box.level; level++) path.push(put(level, THIN));
      path.push(box);
      path.slice(1).forEach((one, at) => link(path[at], one));
      edges.push(path);
    }
  }
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const down = sweep % 2 === 0;
    for (const level of down ? levels : [...levels].reverse()) {
      const wish = new Map(level.map((one) => { const near = down ? one.above : one.below; return [one, near.length ? mean(near.map(({ x }) => x)) : one.x]; }));
      level.sort((a, b) => wish.get(a) - wish.get(b));
      level.forEach((one, at) => { one.x = at ? Math.max(wish.get(one), level[at - 1].x + (level[at - 1].width + one.width) / 2 + ACROSS) : wish.get(one); });
      const shift = mean(level.map((one) => wish.get(one) - one.x));
      for (const one of level) one.x += shift;
    }
  }
  const all = levels.flat();
  const left = Math.min(...all.map(({ x, width }) => x - width / 2)) - 4;
  const y = ({ level }) => 4 + boxHeight / 2 + level * (boxHeight + DOWN);
  const point = (one) => ({ x: one.x - left, y: y(one) });
  return {
    width: Math.max(...all.map(({ x, width }) => x + width / 2)) - left + 4, height: levels.length * (boxHeight + DOWN) - DOWN + 8,
    at: Object.fromEntries([...boxes].map(([name, box]) => [name, point(box)])), edges: edges.map((path) => path.map(point)),
  };
}

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
