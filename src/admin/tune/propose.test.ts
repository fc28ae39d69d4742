import { expect, test } from "vitest";
import { environmentVariables } from "../../options/index.ts";
import {
  chooseHandling,
  chooseMeasurement,
  percentile,
  propose,
  type Handling,
  type Measurement,
} from "./propose.ts";
import { tuneBatchSizes, tuneHandlers } from "./tune.ts";

const measured = (batchSize: number, concurrency: number, perSecond: number): Measurement => {
  const speed = { perSecond, p50Ms: 1, p95Ms: 2 };
  return { batchSize, concurrency, drain: speed, write: { ...speed, perSecond: perSecond / 2 } };
};
const handled = (concurrency: number, perSecond: number): Handling => ({
  concurrency,
  handled: { perSecond, p50Ms: 1, p95Ms: 3 },
});
const machine = { cores: 4, sameMachine: true, usableConnections: 97 };

test("G11: the smallest setting within five per cent of the fastest is proposed", () => {
  const all = [measured(10, 1, 500), measured(100, 1, 950), measured(500, 1, 960), measured(500, 8, 1_000)];
  expect(chooseMeasurement(all)).toMatchObject({ batchSize: 100, concurrency: 1 });
  expect(chooseMeasurement([measured(100, 1, 940), measured(50, 2, 1_000)])).toMatchObject({ batchSize: 50 });
  expect(chooseMeasurement([])).toBeUndefined();
});

test("G11: proposals carry their figures, and two workers are the least", () => {
  const proposals = propose([measured(100, 1, 1_000)], [handled(10, 400), handled(20, 410)], machine);
  expect(proposals.map(({ setting, value }) => [setting, value])).toEqual([
    ["SAGABOX_BATCH_SIZE", "100"],
    ["SAGABOX_CONCURRENCY", "10"],
    ["workers", "2"],
    ["pool size", "9"],
    ["lanes", "256"],
    ["expect", "500 messages/s"],
  ]);
  expect(proposals[0]?.why).toBe("1000 messages/s, 100 % of the fastest, with 2.0 ms for a batch (p95)");
  expect(proposals[1]?.why).toMatch(/^400 messages\/s .*3\.0 ms each \(p95\).*want more$/);
  const elsewhere = propose([measured(100, 4, 1_000)], [], {
    ...machine,
    sameMachine: false,
    usableConnections: 5,
  });
  expect(elsewhere[1]?.value).toBe("4");
  expect(elsewhere[2]).toMatchObject({ value: "5", why: expect.stringContaining("--cores") as string });
});

test("G11: as few handlers as come within five per cent of the fastest are proposed, however many that are", () => {
  expect(chooseHandling([handled(40, 1_000), handled(20, 960), handled(10, 900)])).toMatchObject({
    concurrency: 20,
  });
  expect(chooseHandling([])).toBeUndefined();
});

test("G11: what is measured reaches beyond what holds without it, so that a default can be found too small", () => {
  expect(Math.max(...tuneBatchSizes)).toBeGreaterThan(Number(environmentVariables.batchSize.option.default));
  expect(Math.max(...tuneHandlers)).toBeGreaterThan(Number(environmentVariables.concurrency.option.default));
});

test("a percentile is a value that was measured", () => {
  expect([percentile([3, 1, 2], 0.5), percentile([3, 1, 2], 0.95), percentile([], 0.5)]).toEqual([2, 3, 0]);
});
