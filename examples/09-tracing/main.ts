import { recorded } from "./sdk.ts"; // before everything that is traced
import { trace } from "@opentelemetry/api";
import pg from "pg";
import { createBus } from "sagabox";
import { startEmbeddedPostgres } from "sagabox/embedded";
import { Charge, ordering } from "./order.ts";
import { formatTree } from "./tree.ts";
// #region import
import { openTelemetry } from "sagabox/opentelemetry";
// #endregion import

const given = process.env["DATABASE_URL"];
const server = given === undefined ? await startEmbeddedPostgres({ dataDir: ".sagabox/tracing" }) : undefined;
const pool = new pg.Pool({ connectionString: server?.url ?? given, max: 20 });

// #region bus
const bus = createBus({ service: "shop", database: pool, log: "warn", telemetry: openTelemetry() });
// #endregion bus
await bus.migrate();
bus.register(ordering);

// #region handler
const tracer = trace.getTracer("shop");
bus.on(Charge, { consumer: "payments" }, ({ data }) =>
  tracer.startActiveSpan("ask the bank", (span) => {
    span.end(); // your own spans nest below ours
    return { receipt: `receipt of ${data.orderId}` };
  }),
);
// #endregion handler
const ended = new Promise<void>((resolve) => {
  bus.sagas.watch((news) => {
    if (news.kind === "changed" && news.to === "completed") resolve();
  });
});
await bus.run();

// #region request
// What an instrumented web framework does around your handler:
await tracer.startActiveSpan("POST /orders", async (request) => {
  await bus.transaction((tx) => bus.start(tx, ordering, { orderId: "A-1" }));
  request.end();
});
// #endregion request
await ended;
await bus.stop();
await pool.end();
await server?.stop();
console.log(formatTree(recorded.getFinishedSpans()));
