// The code in docs/guides/large-payloads.md is cut from examples/guides; here it runs.
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { randomBytes } from "node:crypto";
import { createBus } from "sagabox";
import { fileStore } from "sagabox/claim-check";
import { MemoryTransport } from "sagabox/testing";
import { expect, onTestFinished, test } from "vitest";
import {
  busThatReads,
  busWithS3,
  fileReport,
  keepReports,
  tidy,
} from "../../examples/guides/large-payloads.ts";
import { cloudStore, type ObjectService } from "../../examples/guides/own-store.ts";
import { exerciseStore } from "../support/stores/exercise-store.ts";
import { Drawn, large } from "../support/stores/payload-contracts.ts";
import { payloadHarness, temporaryFolder } from "../support/stores/payload-harness.ts";

/** A cloud in memory, with pages of ten. */
function memoryObjects(): ObjectService {
  const kept = new Map<string, { bytes: Buffer; createdAt: Date }>();
  return {
    upload: async (name, bytes) => {
      const pieces: Uint8Array[] = [];
      for await (const piece of bytes) pieces.push(piece);
      kept.set(name, { bytes: Buffer.concat(pieces), createdAt: new Date() });
    },
    download: async (name) => {
      const found = kept.get(name);
      if (found === undefined) return undefined;
      return (async function* () {
        yield found.bytes;
      })();
    },
    remove: async (name) => void kept.delete(name),
    list: async (prefix, page = "") => {
      const names = [...kept.keys()].filter((name) => name.startsWith(prefix) && name > page).toSorted();
      const some = names.slice(0, 10);
      const objects = some.map((name) => ({ name, createdAt: kept.get(name)?.createdAt ?? new Date(0) }));
      return { objects, nextPage: names.length > 10 ? some.at(-1) : undefined };
    },
  };
}

exerciseStore("a store of one's own", async () => cloudStore("cloud", memoryObjects()));

test("a report travels as a stream, and the collector has nothing to do", async () => {
  const folder = await temporaryFolder();
  const bytes = randomBytes(500_000);
  await writeFile(join(folder, "report.pdf"), bytes);
  const { bus, observer } = await payloadHarness({
    claimCheck: { store: cloudStore("cloud", memoryObjects()) },
  });
  keepReports(bus, join(folder, "kept.pdf"));
  await bus.run();
  await fileReport(bus, join(folder, "report.pdf"));
  await observer.until("consumer.processed");
  expect((await readFile(join(folder, "kept.pdf"))).equals(bytes)).toBe(true);
  expect(await tidy(bus)).toBe("0 unneeded, 0 orphaned");
});

test("a service reads what another one stored, once it was given that store", async () => {
  const folder = await temporaryFolder();
  const { pool, observer } = await payloadHarness();
  const options = { service: "orders", database: pool, log: false, observers: [observer] } as const;
  const orders = createBus({
    ...options,
    claimCheck: { store: fileStore({ id: "orders-files", folder: join(folder, "orders") }) },
  });
  const billing = busThatReads({ ...options, service: "billing" }, folder);
  onTestFinished(async () => void (await Promise.all([orders.stop(), billing.stop()])));
  const got: number[] = [];
  billing.on(Drawn, { consumer: "billing" }, ({ data }) => void got.push(data.text.length));
  await billing.run();
  await orders.transaction((tx) => tx.publish(Drawn, large()));
  await observer.until("consumer.processed");
  expect(got).toEqual([1_200_000]);
});

test("a bus with S3 behind a broker is created without a connection", async () => {
  const { pool } = await payloadHarness();
  const bus = busWithS3(pool, new MemoryTransport());
  onTestFinished(async () => void (await bus.stop()));
  expect(bus.payloads).toBeDefined();
});
