import { createBus, saga, type SagaNews } from "sagabox";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { temporaryDatabase } from "../../test/support/database.ts";
import { until } from "../../test/support/relays.ts";

const greeting = saga("watched", { version: 1, input: z.object({ id: z.string() }), key: ({ id }) => id })
  .run("greet", () => "hello")
  .noUndo("words only");

test("G4: whoever watches sagas hears each step and each change of status, with the trace, until they stop", async () => {
  const { pool } = await temporaryDatabase({ max: 30, migrated: true });
  const lines: string[] = [];
  const log = { level: "silent", format: "json", sagas: (line: string) => void lines.push(line) } as const;
  const bus = createBus({ service: "watching", database: pool, log });
  onTestFinished(async () => void (await bus.stop()));
  bus.register(greeting);
  const news: SagaNews[] = [];
  bus.sagas.watch(() => {
    throw new Error("a listener that fails disturbs nobody");
  });
  const stop = bus.sagas.watch((one) => void news.push(one));
  await bus.run();
  const start = (id: string) => bus.transaction((tx) => bus.start(tx, greeting, { id }));
  const { sagaId } = await start("1");
  await until(async () => news.some((one) => one.kind === "changed" && one.to === "completed"));
  const { traceId } = await bus.sagas.show(sagaId);
  const told = news.map((one) => (one.kind === "step" ? `${one.step} ${one.status}` : `→ ${one.to}`));
  expect(told).toEqual(expect.arrayContaining(["greet in_progress", "greet completed", "→ completed"]));
  for (const one of news) expect(one).toMatchObject({ id: sagaId, type: "watched", traceId });
  const parsed = lines.map((line) => JSON.parse(line) as object);
  expect(parsed).toHaveLength(news.length);
  for (const line of parsed)
    expect(line).toMatchObject({ stream: "saga", saga_id: sagaId, trace_id: traceId });
  stop();
  const count = news.length;
  const second = await start("2");
  await until(async () => (await bus.sagas.show(second.sagaId)).status === "completed");
  expect(news).toHaveLength(count);
});
