import { describe } from "vitest";
import { fromNatsHeaders } from "../../../src/transports/nats/header-mapping.ts";
import { deadLetterSuite } from "../../support/broker-suites.ts";
import { connectClient, missing, newPrefix, sharedUrl, createTransport } from "./harness.ts";

describe.skipIf(missing)("dead letters at NATS", () => {
  deadLetterSuite(() => {
    const prefix = newPrefix();
    const looking = connectClient();
    return {
      transport: createTransport({ servers: sharedUrl, prefix }),
      letters: async () => {
        const { jsm } = await looking;
        const { state } = await jsm.streams.info(`${prefix}_dead`);
        const kept = Array.from({ length: state.messages }, (_, n) =>
          jsm.streams.getMessage(`${prefix}_dead`, { seq: state.first_seq + n }),
        );
        return (await Promise.all(kept)).flatMap((letter) =>
          letter === null
            ? []
            : [{ body: Buffer.from(letter.data).toString(), headers: fromNatsHeaders(letter.header) }],
        );
      },
    };
  });
});
