import { isSagaboxError } from "../errors/index.ts";
import type { Observer } from "../telemetry/index.ts";
import type { Transport } from "../transport/index.ts";

/** A broker that is down does not keep the bus from starting: what is published waits in the outbox for it. */
export async function openTransport(transport: Transport, observer: Observer): Promise<void> {
  try {
    await transport.open();
  } catch (error) {
    if (!isSagaboxError(error, "TRANSPORT_UNREACHABLE")) throw error;
    observer.emit("transport.unreachable", {
      transport: transport.name,
      doing: "opening it",
      error: error.message,
      retryInMs: 1_000,
    });
  }
}
