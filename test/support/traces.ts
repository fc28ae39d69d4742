import { context, trace, type Tracer, SpanKind } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
  type ReadableSpan,
} from "@opentelemetry/sdk-trace-base";
import { command, createBus, event, permanent, saga, type Bus, type Transport } from "sagabox";
import { openTelemetry } from "sagabox/opentelemetry";
import { onTestFinished, expect, test } from "vitest";
import { z } from "zod";
import { temporaryDatabase } from "./database.ts";
import { until } from "./relays.ts";

/** An SDK of the test's own, which keeps every span that has ended. */
export function recordedTraces() {
  const exporter = new InMemorySpanExporter();
  const tracerProvider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  onTestFinished(async () => {
    context.disable();
    await tracerProvider.shutdown();
  });
  const tracer: Tracer = tracerProvider.getTracer("test");
  return {
    tracerProvider,
    tracer,
    telemetry: openTelemetry({ tracerProvider }),
    spans: () => exporter.getFinishedSpans(),
    /** The spans of one trace, by name. */
    namesIn: (traceId: string) => [
      ...new Set(
        exporter
          .getFinishedSpans()
          .filter((span) => span.spanContext().traceId === traceId)
          .map(({ name }) => name),
      ),
    ],
    named: (name: string): ReadableSpan[] => exporter.getFinishedSpans().filter((span) => span.name === name),
    /** Runs the work like an external request, and returns the trace id. */
    async asRequest<T>(name: string, work: () => Promise<T>): Promise<{ traceId: string; result: T }> {
      const span = tracer.startSpan(name, { root: true });
      try {
        const result = await context.with(trace.setSpan(context.active(), span), work);
        return { traceId: span.spanContext().traceId, result };
      } finally {
        span.end();
      }
    },
  };
}

export function listEvents({ events }: ReadableSpan): string[] {
  return events.map(({ name }) => name);
}

/** Everything that spans say, as one text. */
export function tracesText(spans: readonly ReadableSpan[]): string {
  return JSON.stringify(
    spans.map(({ name, attributes, events, status, links }) => ({ name, attributes, events, status, links })),
  );
}

const Order = z.object({ orderId: z.string() });
const Charge = command("traced.charge", { schema: Order, reply: z.object({ receipt: z.string() }) });
const Placed = event("traced.placed", { schema: Order, key: ({ orderId }) => orderId });
const ordering = saga("traced-order", { version: 1, input: Order, key: ({ orderId }) => orderId })
  .send("charge", Charge, ({ input }) => input)
  .noUndo("a measurement")
  .run("thank", () => "thanks")
  .noUndo("words only");

export interface TracingFixture {
  readonly transports: readonly [Transport, Transport];
  /** What spans call the broker. */
  readonly system: string;
  /** Both services live in one database, which is their broker. */
  readonly together?: boolean;
}

type Sender = "relay" | "writer";

const via = { relay: "relay", writer: "optimistic" } as const;

/**
 * One request becomes one trace over two services that share nothing but a broker. Who sends may be another for what the
 * first service asks and for what the second answers.
 */
export function tracingSuite(sentBy: Sender, place: () => TracingFixture, answeredBy = sentBy): void {
  const senders = [...new Set([sentBy, answeredBy])].join(", ");
  test(`G3: one trace id is on the spans of producer, ${senders}, consumer and saga`, async () => {
    const { transports, system, together = false } = place();
    const traces = recordedTraces();
    const shared = together ? await temporaryDatabase({ max: 60 }) : undefined;
    const side = async (service: string, transport: Transport, sender: Sender): Promise<Bus> => {
      const { pool } = shared ?? (await temporaryDatabase({ max: 30 }));
      const { telemetry } = traces;
      const outbox = { optimistic: sender === "writer" };
      const bus = createBus({ service, database: pool, transport, outbox, telemetry, log: false });
      onTestFinished(async () => void (await bus.stop()));
      await bus.migrate();
      return bus;
    };
    const shop = await side("traced-shop", transports[0], sentBy);
    const others = await side("traced-others", transports[1], answeredBy);
    others.on(Charge, { consumer: "traced-till", retry: { firstDelay: "10ms" } }, async (_, { attempt }) => {
      if (attempt === 1) throw new Error("the till is closed");
      return traces.tracer.startActiveSpan("card terminal", (span) => {
        span.end();
        return { receipt: "r" };
      });
    });
    others.on(Placed, { consumer: "traced-mail" }, () => {
      throw permanent("no such address");
    });
    shop.register(ordering);
    await others.run();
    await shop.run();

    const { traceId, result } = await traces.asRequest("POST /orders", () =>
      shop.transaction(async (tx) => {
        await tx.publish(Placed, { orderId: "o1" });
        return shop.start(tx, ordering, { orderId: "o1" });
      }),
    );
    const isCompleted = async () => (await shop.sagas.show(result.sagaId)).status === "completed";
    await until(async () => (await isCompleted()) && (await others.deadLetters.list()).length === 1, 60_000);
    const names = [
      "POST /orders",
      "start traced-order",
      "transition traced-order",
      "create commands.traced.charge",
      "send commands.traced.charge",
      "process commands.traced.charge",
      "card terminal",
      "create replies.traced-shop.sagas",
      "send replies.traced-shop.sagas",
      "process replies.traced-shop.sagas",
      "step traced-order thank",
      "create events.traced.placed",
      "send events.traced.placed",
      "process events.traced.placed",
    ];
    // A span may end a moment after what it is about was committed.
    await until(async () => names.every((name) => traces.namesIn(traceId).includes(name)));
    expect(traces.namesIn(traceId).toSorted()).toEqual(names.toSorted());
    const [created] = traces.named("create commands.traced.charge");
    const [sent] = traces.named("send commands.traced.charge");
    const [answered] = traces.named("send replies.traced-shop.sagas");
    expect([sent, answered].map((span) => span?.attributes["sagabox.via"])).toEqual([
      via[sentBy],
      via[answeredBy],
    ]);
    const [first, second] = traces.named("process commands.traced.charge");
    const [terminal] = traces.named("card terminal");
    expect([created, sent, first].map((span) => span?.kind)).toEqual([
      SpanKind.PRODUCER,
      SpanKind.CLIENT,
      SpanKind.CONSUMER,
    ]);
    for (const span of [sent, first, second])
      expect(span?.parentSpanContext?.spanId).toBe(created?.spanContext().spanId);
    expect(terminal?.parentSpanContext?.spanId).toBe(second?.spanContext().spanId);
    expect([first, second].map((span) => span?.attributes["sagabox.attempt"])).toEqual([1, 2]);
    expect(listEvents(first as NonNullable<typeof first>)).toEqual(["exception", "retry"]);
    expect(second?.attributes).toMatchObject({
      "messaging.system": system,
      "messaging.operation.name": "process",
      "messaging.operation.type": "process",
      "messaging.destination.name": "commands.traced.charge",
      "messaging.consumer.group.name": "traced-till",
      "messaging.message.id": created?.attributes["messaging.message.id"],
      "messaging.message.conversation_id": created?.attributes["messaging.message.conversation_id"],
      "sagabox.message.type": "traced.charge",
      "sagabox.saga.id": result.sagaId,
      "sagabox.outcome": "processed",
    });
    const [dead] = traces.named("process events.traced.placed");
    expect(listEvents(dead as NonNullable<typeof dead>)).toEqual(["exception", "dead_letter"]);
    expect(dead?.attributes["error.type"]).toBeDefined();
    const statuses = () =>
      traces.named("transition traced-order").map((span) => span.attributes["sagabox.saga.status"]);
    await until(async () => statuses().includes("completed"));
  });
}
