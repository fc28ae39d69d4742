import { createBus } from "sagabox";
import { testKeyRing } from "../support/data-subjects.ts";

// A process that starts an erasure, and is killed at the moment that the test chooses.
const [url = ""] = process.argv.slice(2);
const bus = createBus({ service: "eraser", database: url, log: false, privacy: { keys: testKeyRing() } });
process.on("message", () => void bus.privacy.erase("c-ada", { reason: "request" }));
process.send?.("ready");
