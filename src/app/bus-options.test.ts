import { expect, test } from "vitest";
import { kafka } from "../transports/kafka/index.ts";
import { readBusSettings, type BusOptions } from "./bus-options.ts";

const wrong = {
  service: "",
  lease: "soon",
  outbox: { batchSize: 0, brake: {} },
  sagas: { concurrency: -1 },
  claimCheck: { threshold: 1 },
  privacy: { indexKey: "hunter2", keys: {} },
  notify: { webhook: { url: "http://hunter2.example" } },
} as unknown as BusOptions;

test("G11: all problems of the options and the environment are reported at once, without any value", () => {
  const read = () =>
    readBusSettings(wrong, { SAGABOX_PORT: "hunter2", DATABASE_URL: "mysql://root:hunter2@db" });
  const told = ["DATABASE_URL", "SAGABOX_PORT", "service", "lease", "outbox.batchSize", '"brake"'];
  for (const name of [
    ...told,
    "sagas.concurrency",
    "claimCheck.threshold",
    "privacy.",
    "notify.webhook.url",
  ]) {
    expect(read).toThrowError(name);
  }
  expect(read).not.toThrowError(/hunter2|No database/);
});

test("G11: a missing database is one problem among others", () => {
  expect(() => readBusSettings({ service: "shop", lease: 1 }, {})).toThrowError(/No database[^]*lease/);
});

test("G11: a database URL of another product is refused at once, without its password", () => {
  const read = () => readBusSettings({ service: "shop", database: "mysql://root:hunter2@db" }, {});
  expect(read).toThrowError(/database.*postgres:\/\/user@host:5432\/database/);
  expect(read).not.toThrowError(/hunter2/);
});

test("G11: so are all problems of a transport", () => {
  expect(() => kafka({ brokers: ["nowhere"], maxInFlight: 9, linger: "soon" as never })).toThrowError(
    /kafka\.brokers[^]*kafka\.linger[^]*kafka\.maxInFlight/,
  );
});
