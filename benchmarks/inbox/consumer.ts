import { size, type Bench } from "../harness/bench.ts";
import { compare, type Contender } from "../harness/compare.ts";
import { result, type Result } from "../harness/result.ts";
import { median, computeRatio } from "../harness/statistics.ts";
import { TransactionPerMessage } from "../references/inbox.ts";
import { SketchConsumer } from "../references/sketch-writes.ts";
import { consumers, type Style } from "./consumers.ts";

/** Deduplication and one business row per message: what the ways of handling are worth. */
export async function consumer(bench: Bench): Promise<Result[]> {
  const count = size(bench, 10_000, 4_000);
  const rawPlace = await bench.server.database("consumer");
  const raw = await TransactionPerMessage.open(rawPlace);
  const sketch = new SketchConsumer(rawPlace);
  const open = {
    each: await consumers(bench, "each"),
    statement: await consumers(bench, "statement"),
    pipelined: await consumers(bench, "pipelined"),
    bulk: await consumers(bench, "bulk"),
  };
  const run = (style: Style): Contender => {
    return () => open[style].rate(count);
  };
  const samples = await compare(bench, "P12, messages/s", {
    raw: () => raw.rate(count),
    each: run("each"),
    statement: run("statement"),
    pipelined: run("pipelined"),
    bulk: run("bulk"),
    "sketch, statement": () => sketch.statementRate(count),
    "sketch, bulk": () => sketch.bulkRate(count),
  });
  const room = (name: "sketch, statement" | "sketch, bulk") => computeRatio(samples[name], samples.raw);
  const costs = Object.fromEntries(
    Object.entries(open).map(([style, one]) => [style, one.statementsPerMessage()]),
  );
  for (const one of Object.values(open)) await one.close();
  await rawPlace.drop();
  const detail = (style: Style) => ({
    "messages/s": median(samples[style]),
    "statements per message": costs[style] ?? Number.NaN,
    "transaction per message, messages/s": median(samples.raw),
  });
  const plain = { "plain handler, ratio": computeRatio(samples.each, samples.raw).ratio };
  const statement = { ...detail("statement"), ...plain };
  return [
    result(
      "P12.statement",
      computeRatio(samples.statement, samples.raw),
      statement,
      room("sketch, statement"),
    ),
    result("P12.pipelined", computeRatio(samples.pipelined, samples.raw), detail("pipelined")),
    result("P12.bulk", computeRatio(samples.bulk, samples.raw), detail("bulk"), room("sketch, bulk")),
  ];
}
