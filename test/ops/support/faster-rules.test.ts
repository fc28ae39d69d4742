import { expect, test } from "vitest";
import { faster } from "./faster-rules.ts";
import { ruleFiles } from "./rule-files.ts";

test("windows, offsets, waits and ages shrink; names and other thresholds stay", () => {
  const rule = {
    alert: "A",
    expr: "increase(x_total[10m]) and x_total offset 1h > 10 and sagabox:outbox_oldest_pending_age_seconds:max > 300",
    for: "5m",
    labels: { severity: "critical" },
  };
  const recorded = { record: "sagabox:a:rate5m", expr: "rate(x_total[5m]) > 1000" };
  expect(faster({ groups: [{ name: "g", rules: [rule, recorded] }] }, 100)).toEqual({
    groups: [
      {
        name: "g",
        rules: [
          {
            ...rule,
            expr: "increase(x_total[6000ms]) and x_total offset 36000ms > 10 and sagabox:outbox_oldest_pending_age_seconds:max > 3",
            for: "3000ms",
          },
          { ...recorded, expr: "rate(x_total[3000ms]) > 1000" },
        ],
      },
    ],
  });
});

test("a factor of one leaves the rules as they are, except for the way times are written", () => {
  const plain = (text: string): string => text.replaceAll(/\b\d+(ms|[smhd])\b/g, "…");
  for (const [name, file] of ruleFiles())
    expect({ name, text: plain(JSON.stringify(faster(file, 1))) }).toEqual({
      name,
      text: plain(JSON.stringify(file)),
    });
});
