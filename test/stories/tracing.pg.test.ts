import { command, createBus, event } from "sagabox";
import { openTelemetry } from "sagabox/opentelemetry";
import { postgres } from "sagabox/postgres";
import { describe, expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { temporaryDatabase } from "../support/database.ts";
import { recordedTraces, tracingSuite } from "../support/traces.ts";
import { until } from "../support/relays.ts";

const Id = z.object({ id: z.string() });
const Placed = event("spanned.placed", { schema: Id });
const Noted = event("spanned.noted", { schema: Id });
const Ask = command("spanned.ask", { schema: Id, reply: z.object({ answer: z.string() }) });

async function createHarness(telemetry = recordedTraces().telemetry) {
  const { pool } = await temporaryDatabase({ max: 30, migrated: true });
  const bus = createBus({ service: "spanned", database: pool, telemetry, log: false });
  onTestFinished(async () => void (await bus.stop()));
  return { bus, pool };
}

describe("traces over PostgreSQL", () => {
  const placeOrder = () =>
    ({ transports: [postgres(), postgres()], system: "postgresql", together: true }) as const;
  tracingSuite("relay", placeOrder);
  tracingSuite("writer", placeOrder);

  test("G3: a request, its command and its reply are one trace", async () => {
    const traces = recordedTraces();
    const { bus } = await createHarness(traces.telemetry);
    bus.on(Ask, { consumer: "spanned-oracle" }, () => ({ answer: "42" }));
    await bus.run();
    const { traceId } = await traces.asRequest("GET /answer", () =>
      bus.request(Ask, { id: "1" }, { timeout: "20s" }),
    );
    await until(async () => traces.namesIn(traceId).length >= 8);
    expect(traces.namesIn(traceId).toSorted()).toEqual([
      "GET /answer",
      "create commands.spanned.ask",
      "create replies.spanned",
      "process commands.spanned.ask",
      "process replies.spanned",
      "request spanned.ask",
      "send commands.spanned.ask",
      "send replies.spanned",
    ]);
  });

  test("G3: a batch links to the traces of all its messages, and what it publishes belongs to the first", async () => {
    const traces = recordedTraces();
    const { bus } = await createHarness(traces.telemetry);
    bus.onBatch(
      Placed,
      { consumer: "spanned-batch", batch: { size: 3, wait: "2s" }, concurrency: 1 },
      async (messages, { publish }) => void (await publish(Noted, { id: String(messages.length) })),
    );
    await bus.run();
    const ids: string[] = [];
    for (const id of ["1", "2", "3"]) {
      const publish = () => bus.transaction((tx) => tx.publish(Placed, { id }));
      ids.push((await traces.asRequest(`POST ${id}`, publish)).traceId);
    }
    await until(async () => traces.named("create events.spanned.noted").length > 0);
    const [noted] = traces.named("create events.spanned.noted");
    expect(ids).toContain(noted?.spanContext().traceId);
    // They may come in one batch or in several, and one of them alone.
    const handledSpans = () => traces.named("process events.spanned.placed");
    const linkedTraceIds = () =>
      handledSpans().flatMap(({ links }) => links.map(({ context }) => context.traceId));
    await until(async () => ids.every((id) => linkedTraceIds().includes(id)));
    expect([...new Set(linkedTraceIds())].toSorted()).toEqual(ids.toSorted());
    for (const { attributes, links } of handledSpans()) {
      expect(links).toHaveLength(Number(attributes["messaging.batch.message_count"] ?? 1));
    }
  });

  test("G3: a consumer loop of one's own is traced too, below the trace that its message names", async () => {
    const traces = recordedTraces();
    const { bus } = await createHarness(traces.telemetry);
    const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const foreign = {
      id: "f-1",
      consumer: "own",
      topic: "theirs",
      type: "theirs.placed",
      data: 1,
      traceparent,
    };
    await bus.inbox.process(foreign, async (_, { publish }) => void (await publish(Noted, { id: "1" })));
    expect(traces.namesIn(traceparent.slice(3, 35))).toEqual(
      expect.arrayContaining(["process theirs", "create events.spanned.noted"]),
    );
  });

  test("G3: without an SDK everything works, and messages still carry one trace", async () => {
    const { bus, pool } = await createHarness(openTelemetry());
    bus.on(
      Placed,
      { consumer: "spanned-plain" },
      async ({ data }, { publish }) => void (await publish(Noted, data)),
    );
    await bus.run();
    await bus.transaction((tx) => tx.publish(Placed, { id: "1" }));
    const publishTraced = async () => {
      const { rows } = await pool.query<{ trace: string }>(
        "select split_part(traceparent, '-', 2) as trace from sagabox.message",
      );
      return rows.map(({ trace }) => trace);
    };
    await until(async () => (await publishTraced()).length === 2);
    const [first, second] = await publishTraced();
    expect(first).toMatch(/^[0-9a-f]{32}$/);
    expect(second).toBe(first);
  });
});
