import { z } from "zod";
import { command, createBus, saga, type Bus } from "../../src/index.ts";
import type { Observer } from "../../src/telemetry/index.ts";
import { size, type Bench } from "../harness/bench.ts";
import { compare, type Contender } from "../harness/compare.ts";
import { result, type Result } from "../harness/result.ts";
import { median, computeRatio } from "../harness/statistics.ts";
import { FiveTrips } from "../references/five-trips.ts";
import { openDbos } from "./dbos.ts";
import { StepTimes, type StepChange } from "./step-times.ts";

const STEPS = 3;
/** What a saga of three steps writes: its start is one as well. */
const TRANSITIONS = STEPS + 1;
const AT_ONCE = 8;
const Input = z.object({ id: z.string() });
const Work = command("bench.work", { schema: Input, reply: z.object({ ok: z.boolean() }) });

const start = (name: string) => saga(name, { version: 1, input: Input, key: (i) => i.id });
const local = start("local")
  .run("one", () => ({ ok: true }))
  .noUndo("a measurement")
  .run("two", () => ({ ok: true }))
  .noUndo("a measurement")
  .run("three", () => ({ ok: true }))
  .noUndo("a measurement");
const inside = start("inside")
  .tx("one", async () => ({ ok: true }))
  .noUndo("a measurement")
  .tx("two", async () => ({ ok: true }))
  .noUndo("a measurement")
  .tx("three", async () => ({ ok: true }))
  .noUndo("a measurement");
const remote = start("remote")
  .send("one", Work, (c) => c.input)
  .noUndo("a measurement")
  .send("two", Work, (c) => c.input)
  .noUndo("a measurement")
  .send("three", Work, (c) => c.input)
  .noUndo("a measurement");

type Measured = typeof local | typeof inside | typeof remote;

/** Sagas of three steps of each kind: transitions a second against five trips by hand, and whole sagas against DBOS. */
export async function sagaSteps(bench: Bench): Promise<Result[]> {
  const count = size(bench, 1_000, 300);
  const product = await openProduct(bench);
  const rawPlace = await bench.server.database("five_trips");
  const raw = await FiveTrips.open(rawPlace);
  const dbos = await openDbos(bench);
  const samples = await compare(bench, "P13, transitions/s", {
    raw: () => raw.rate(count, TRANSITIONS),
    local: (run) => product.rate(local, run, count),
    inside: (run) => product.rate(inside, run, count),
    remote: (run) => product.rate(remote, run, count),
    sketch: () => raw.sketchRate(count, TRANSITIONS),
    dbos: async () => ((await dbos?.rate(Math.ceil(count / 5))) ?? 0) * TRANSITIONS,
  });
  const few = Math.ceil(count / 5);
  const alone = {
    local: await product.latency(local, few),
    inside: await product.latency(inside, few),
    remote: await product.latency(remote, few),
  };
  await product.close();
  await rawPlace.drop();
  await dbos?.close();
  const toStepRate = (transitions: readonly number[]): number => (median(transitions) * STEPS) / TRANSITIONS;
  const detail = {
    "local steps/s": toStepRate(samples.local),
    "transactional steps/s": toStepRate(samples.inside),
    "remote steps/s": toStepRate(samples.remote),
    ...alone.local.detail("local"),
    ...alone.inside.detail("transactional"),
    ...alone.remote.detail("remote"),
    "five trips, transitions/s": median(samples.raw),
  };
  const results = [
    result(
      "P13.local",
      computeRatio(samples.local, samples.raw),
      detail,
      computeRatio(samples.sketch, samples.raw),
    ),
    result("P13.inside", computeRatio(samples.inside, samples.raw)),
    result("P13.remote", computeRatio(samples.remote, samples.raw)),
  ];
  if (dbos === undefined) return results;
  const peer = { "DBOS steps/s": toStepRate(samples.dbos) };
  return [...results, result("P13.dbos", computeRatio(samples.local, samples.dbos), peer)];
}

async function openProduct(bench: Bench) {
  const place = await bench.server.database("sagas");
  const pool = place.pool(30);
  let stepTimes: StepTimes | undefined;
  let ended = 0;
  let reached: { readonly count: number; readonly resolve: () => void } | undefined;
  const counter: Observer = {
    emit(name, fields) {
      if (name === "saga.step") stepTimes?.onChange(fields as StepChange);
      if (name !== "saga.changed" || (fields as { to: string }).to !== "completed") return;
      ended += 1;
      if (reached !== undefined && ended >= reached.count) reached.resolve();
    },
  };
  const bus: Bus = createBus({
    service: "bench",
    database: pool,
    log: "error",
    observers: [counter],
    sagas: { concurrency: AT_ONCE },
  });
  bus.register(local, inside, remote);
  bus.on(Work, { consumer: "work", concurrency: AT_ONCE }, async () => ({ ok: true }));
  await bus.migrate();
  await bus.run();
  const run = async (which: Measured, count: number, name: string): Promise<void> => {
    const done = new Promise<void>((resolve) => (reached = { count: ended + count, resolve }));
    let next = 0;
    await Promise.all(
      Array.from({ length: AT_ONCE }, async () => {
        for (let n = next++; n < count; n = next++) {
          await bus.transaction((tx) => bus.start(tx, which, { id: `${name}-${n}` }));
        }
      }),
    );
    await done;
  };
  return {
    /** Transitions a second: those of the steps and the start of each saga. */
    async rate(which: Measured, { round }: Parameters<Contender>[0], count: number): Promise<number> {
      const began = performance.now();
      await run(which, count, `${round}-${count}`);
      return ((count * TRANSITIONS) / (performance.now() - began)) * 1_000;
    },
    /** How long a step takes when nothing else waits: one saga after the other. */
    async latency(which: Measured, count: number): Promise<StepTimes> {
      const times = new StepTimes();
      stepTimes = times;
      for (let n = 0; n < count; n++) await run(which, 1, `alone-${n}`);
      stepTimes = undefined;
      return times;
    },
    async close(): Promise<void> {
      await bus.stop();
      await place.drop();
    },
  };
}
