import { expect, onTestFinished, test, vi } from "vitest";
import { aRow } from "../../test/support/lanes.ts";
import { aMessage } from "../../test/support/messages.ts";
import { ScriptedTransport } from "../../test/support/scripted-transport.ts";
import { publishBatch, sortOutcomes, splitIntoBatches, type SendItem } from "./batches.ts";

const item = (id: string, stream: string | null): SendItem => ({ stream, message: aMessage({ id }) });
const patient = { timeoutMs: 1_000, mayContinue: () => true };
const kinds = (outcomes: readonly { kind: string }[]) => outcomes.map((outcome) => outcome.kind);
const idsOf = (calls: readonly (readonly { id: string }[])[]) =>
  calls.map((call) => call.map(({ id }) => id));

test("rule 8: no part holds two messages of one stream, and each stream keeps its order", () => {
  const items = ["a", "b", "a", null, "a", "b", null].map((stream) => ({ stream }));
  expect(splitIntoBatches(items, false)).toEqual([[0, 1, 3, 6], [2, 5], [4]]);
  expect(splitIntoBatches([], false)).toEqual([]);
});

test("rule 8: if a failure fails all later messages of the key, the whole batch is published at once", () => {
  expect(splitIntoBatches([{ stream: "a" }, { stream: "a" }], true)).toEqual([[0, 1]]);
});

test.each([true, false])(
  "the transport receives whether the batch holds all waiting messages (%s)",
  async (gathered) => {
    const transport = new ScriptedTransport();
    const received: unknown[] = [];
    transport.publish = async (batch, ...[options]: { gathered?: boolean }[]) => {
      received.push(options?.gathered);
      return batch.map(() => ({ kind: "published" }));
    };
    await publishBatch(transport, [item("1", null)], { ...patient, gathered });
    await publishBatch(transport, [item("1", null)], patient);
    expect(received).toEqual([gathered, false]);
  },
);

test("rule 8: an unpublished message holds back only its successors", async () => {
  const transport = new ScriptedTransport();
  transport.answer = ({ id }) => (id === "a1" ? "rejected" : "published");
  const batch = [item("a1", "a"), item("b1", "b"), item("a2", "a"), item("b2", "b"), item("a3", "a")];
  const outcomes = await publishBatch(transport, batch, patient);
  expect(kinds(outcomes)).toEqual(["rejected", "published", "skipped", "published", "skipped"]);
  expect(idsOf(transport.calls)).toEqual([["a1", "b1"], ["b2"]]);
});

test.each(["unknown", "unreachable", "refused"] as const)(
  "after %s the rest of the key waits too",
  async (kind) => {
    const transport = new ScriptedTransport();
    transport.answer = () => kind;
    expect(kinds(await publishBatch(transport, [item("a1", "a"), item("a2", "a")], patient))).toEqual([
      kind,
      "skipped",
    ]);
  },
);

test("messages without a key never wait for one another", async () => {
  const transport = new ScriptedTransport();
  transport.answer = ({ id }) => (id === "1" ? "rejected" : "published");
  const outcomes = await publishBatch(transport, [item("1", null), item("2", null)], patient);
  expect(kinds(outcomes)).toEqual(["rejected", "published"]);
});

test("B10: a late answer counts as unknown, and the publish is aborted", async () => {
  const transport = new ScriptedTransport();
  const aborted: boolean[] = [];
  transport.publish = (_batch, ...[options]: { signal: AbortSignal }[]) =>
    new Promise(() => options?.signal.addEventListener("abort", () => aborted.push(true)));
  const outcomes = await publishBatch(transport, [item("1", null)], { ...patient, timeoutMs: 10 });
  expect([kinds(outcomes), aborted]).toEqual([["unknown"], [true]]);
});

test("with wholeBatch a later part gets the remaining time", async () => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  const transport = new ScriptedTransport();
  transport.before = () => new Promise((resolve) => setTimeout(resolve, 60));
  const began = performance.now();
  const batch = ["1", "2", "3", "4"].map((id) => item(id, "a"));
  const options = { timeoutMs: 100, mayContinue: () => true, wholeBatch: true };
  const sent = publishBatch(transport, batch, options).then((outcomes) => ({
    kinds: kinds(outcomes),
    tookMs: performance.now() - began,
  }));
  await vi.advanceTimersByTimeAsync(1_000);
  expect(await sent).toEqual({ kinds: ["published", "unknown", "skipped", "skipped"], tookMs: 100 });
});

test("B10: outcomes are unknown if the transport throws or omits one", async () => {
  const transport = new ScriptedTransport();
  transport.publish = () => Promise.reject(new Error("socket closed"));
  expect(kinds(await publishBatch(transport, [item("1", null)], patient))).toEqual(["unknown"]);
  transport.publish = () => Promise.resolve([{ kind: "published" }]);
  const outcomes = await publishBatch(transport, [item("1", null), item("2", null)], patient);
  expect(kinds(outcomes)).toEqual(["published", "unknown"]);
});

test.each([undefined, null, "published", { kind: "published" }])(
  "B10: outcomes are unknown if a custom transport returns %j",
  async (answer) => {
    const transport = new ScriptedTransport();
    transport.publish = () => Promise.resolve(answer as never);
    const outcomes = await publishBatch(transport, [item("1", null), item("2", null)], patient);
    const error = new Error('publish() of transport "scripted" must return an array of outcomes');
    expect(outcomes).toEqual([
      { kind: "unknown", error },
      { kind: "unknown", error },
    ]);
  },
);

test("B10: an invalid outcome is unknown, and a failure without an error gets one", async () => {
  const transport = new ScriptedTransport();
  const answers = [
    null,
    "published",
    { kind: "done" },
    { kind: "rejected" },
    { kind: "refused", error: "too big" },
  ];
  transport.publish = () => Promise.resolve(answers as never);
  const batch = ["1", "2", "3", "4", "5"].map((id) => item(id, null));
  const nothing = new Error("the transport gave no outcome for this message");
  expect(await publishBatch(transport, batch, patient)).toEqual([
    ...[1, 2, 3].map(() => ({ kind: "unknown", error: nothing })),
    { kind: "rejected", error: new Error("rejected") },
    { kind: "refused", error: new Error("too big") },
  ]);
});

test("the sender may stop between parts; the rest is skipped", async () => {
  const transport = new ScriptedTransport();
  const mayContinue = () => transport.calls.length < 1;
  const outcomes = await publishBatch(transport, [item("1", "a"), item("2", "a")], {
    ...patient,
    mayContinue,
  });
  expect(kinds(outcomes)).toEqual(["published", "skipped"]);
});

test("outcomes are sorted by how rows are settled; a missing one counts as unknown", () => {
  const error = new Error("no");
  const rows = [1, 2, 3, 4, 5, 6, 7].map((seq) => aRow(seq));
  const sorted = sortOutcomes(rows, [
    { kind: "published" },
    { kind: "rejected", error },
    { kind: "refused", error },
    { kind: "unreachable", error },
    { kind: "unknown", error },
    { kind: "skipped" },
  ]);
  expect(sorted.sent).toEqual([rows[0]]);
  expect(sorted.rejected).toEqual([{ row: rows[1], error }]);
  expect(sorted.refused).toEqual([{ row: rows[2], error }]);
  expect(sorted.unanswered.map(({ row, kind }) => [row.seq, kind])).toEqual([
    [4, "unreachable"],
    [5, "unknown"],
    [7, "unknown"],
  ]);
  expect(sorted.skipped).toEqual([rows[5]]);
});
