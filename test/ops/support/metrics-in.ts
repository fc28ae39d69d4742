const WORDS = new Set(
  (
    "and or unless by without on ignoring group_left group_right offset bool sum max min avg count rate irate increase " +
    "histogram_quantile max_over_time vector clamp_max clamp_min time topk label_replace"
  ).split(" "),
);

/** The metrics a PromQL expression asks for, those of a histogram by the histogram's own name. */
export function metricsIn(expression: string): string[] {
  const families = [...expression.matchAll(/__name__=~"([^"]+)"/g)].flatMap(([, pattern]) =>
    spelledOut(pattern ?? ""),
  );
  const bare = expression
    .replaceAll(/\{[^}]*\}/g, " ")
    .replaceAll(/\[[^\]]*\]/g, " ")
    .replaceAll(/\b(by|without|on|ignoring)\s*\([^)]*\)/g, " ")
    .replaceAll(/\boffset\s+\w+/g, " ");
  const names = [...bare.matchAll(/[a-zA-Z_:][\w:]*/g)].map(([name]) => name);
  return [...families, ...names.filter((name) => !WORDS.has(name))].map((name) =>
    name.replace(/_(bucket|sum|count)$/, ""),
  );
}

/** "a_(b|c)_total" is a_b_total and a_c_total. */
function spelledOut(pattern: string): string[] {
  const [, before = "", choices = "", after = ""] = /^(.*)\(([^)]*)\)(.*)$/.exec(pattern) ?? [];
  return choices.split("|").map((choice) => `${before}${choice}${after}`);
}
