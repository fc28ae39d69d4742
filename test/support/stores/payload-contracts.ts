import { command } from "sagabox";
import { z } from "zod";

/** A command, since those wait for their first consumer. */
export const Drawn = command("plan.drawn", { schema: z.object({ n: z.number(), text: z.string() }) });

/** Larger than what travels in a message. */
export function large(n = 1, bytes = 1_200_000): { n: number; text: string } {
  return { n, text: String(n % 10).repeat(bytes) };
}
