import { postgres } from "sagabox/postgres";
import { describe } from "vitest";
import { tracingStory } from "../support/tracing-story.ts";

describe("traces over PostgreSQL", () => {
  tracingStory(() => ({ transports: [postgres(), postgres()], system: "postgresql", together: true }));
});
