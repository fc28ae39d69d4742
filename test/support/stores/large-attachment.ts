import { createHash } from "node:crypto";
import { attachment, command, type Bus } from "sagabox";
import { LiveMemory } from "./live-memory.ts";

const MB = 1_048_576;
const SIZE = 64 * MB;
const PIECE = 64 * 1_024;

const Uploaded = command("file.uploaded", { schema: attachment() });

export interface Passed {
  readonly bytes: number;
  readonly sameBytes: boolean;
  readonly grownMb: number;
}

/** Sends 64 MB through a bus that is not running yet, and tells what arrived and what it cost in memory. */
export async function passLargeAttachment(
  bus: Bus,
  options: { readonly subject?: string } = {},
): Promise<Passed> {
  const sent = createHash("sha256");
  const source = async function* (): AsyncGenerator<Uint8Array> {
    for (let n = 0; n < SIZE / PIECE; n++) {
      const piece = Buffer.alloc(PIECE, n % 251);
      sent.update(piece);
      if (n % 128 === 0) memory.look();
      yield piece;
    }
  };
  let resolve: (what: { bytes: number; sha256: string }) => void = () => undefined;
  const arrived = new Promise<{ bytes: number; sha256: string }>((told) => (resolve = told));
  bus.on(Uploaded, { consumer: "files", deadline: "60s" }, async ({ data }, { open }) => {
    const hash = createHash("sha256");
    let bytes = 0;
    let looked = 0;
    for await (const piece of open(data) as AsyncIterable<Buffer>) {
      hash.update(piece);
      bytes += piece.byteLength;
      if (bytes - looked < 8 * MB) continue;
      looked = bytes;
      memory.look();
    }
    resolve({ bytes, sha256: hash.digest("hex") });
  });
  await bus.run();
  const memory = new LiveMemory(); // what the bus itself needs does not count
  const file = await bus.attach(source(), { contentType: "video/mp4", ...options });
  await bus.transaction((tx) => tx.publish(Uploaded, file));
  const { bytes, sha256 } = await arrived;
  return { bytes, sameBytes: sha256 === sent.digest("hex"), grownMb: memory.grownMb };
}

export const passed = { bytes: SIZE, sameBytes: true };
/** Far below the 64 MB, and above what pieces on their way, a broker's client and its buffers take. */
export const MAX_GROWTH_MB = 40;
