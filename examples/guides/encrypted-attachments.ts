import { createReadStream, createWriteStream } from "node:fs";
import { pipeline } from "node:stream/promises";
import { event, isSagaboxError, type Attachment, type Bus } from "sagabox";
import { z } from "zod";

export const PassportScanned = event("guide.passport.scanned", {
  schema: z.object({ customerId: z.string(), country: z.string(), scan: z.custom<Attachment>() }),
});

// #region attach
export async function filePassport(bus: Bus, customerId: string, path: string): Promise<void> {
  const scan = await bus.attach(createReadStream(path), { contentType: "image/png", subject: customerId });
  await bus.transaction((tx) => tx.publish(PassportScanned, { customerId, country: "PT", scan }));
}
// #endregion attach

// #region open
export function checkPassports(bus: Bus, path: string, report: (text: string) => void): void {
  bus.on(PassportScanned, { consumer: "desk" }, async ({ data }, { open }) => {
    try {
      await pipeline(open(data.scan), createWriteStream(path));
      report(`${data.country}: ${data.scan.$attachment.sealed?.plainBytes} bytes`);
    } catch (error) {
      if (!isSagaboxError(error, "PRIVACY_ERASED")) throw error;
      report(`${data.country}: an erased subject`);
    }
  });
}
// #endregion open
