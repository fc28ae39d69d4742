import { createReadStream, createWriteStream } from "node:fs";
import { pipeline } from "node:stream/promises";
import type { Pool } from "pg";
import {
  createBus,
  event,
  isAttachment,
  type Attachment,
  type Bus,
  type BusOptions,
  type Transport,
} from "sagabox";
import { fileStore, s3Store } from "sagabox/claim-check";
import { z } from "zod";

// #region contract
export const ReportFiled = event("guide.report.filed", {
  schema: z.object({ reportId: z.string(), file: z.custom<Attachment>(isAttachment) }),
  key: ({ reportId }) => reportId,
});
// #endregion contract

// #region attach
export async function fileReport(bus: Bus, path: string): Promise<void> {
  const file = await bus.attach(createReadStream(path), { contentType: "application/pdf" });
  await bus.transaction((tx) => tx.publish(ReportFiled, { reportId: "2026-11", file }));
}
// #endregion attach

// #region open
export function keepReports(bus: Bus, path: string): void {
  bus.on(ReportFiled, { consumer: "archive" }, async ({ data }, { open }) => {
    await pipeline(open(data.file), createWriteStream(path)); // fails at its end if a byte was changed
  });
}
// #endregion open

// #region s3
export function busWithS3(database: Pool, transport: Transport): Bus {
  return createBus({
    service: "orders",
    database,
    transport,
    claimCheck: {
      store: s3Store({ bucket: "acme-payloads", prefix: "orders/", region: "eu-central-1" }),
      threshold: 256 * 1024,
    },
  });
}
// #endregion s3

// #region readers
export function busThatReads(options: BusOptions, folder: string): Bus {
  return createBus({
    ...options,
    claimCheck: {
      store: fileStore({ id: "billing-files", folder: `${folder}/billing` }),
      stores: [fileStore({ id: "orders-files", folder: `${folder}/orders` })],
    },
  });
}
// #endregion readers

// #region collect
export async function tidy(bus: Bus): Promise<string> {
  const { unneeded, orphaned, finished } = await bus.payloads.collect();
  return `${unneeded} unneeded, ${orphaned} orphaned${finished ? "" : ", not finished"}`;
}
// #endregion collect
