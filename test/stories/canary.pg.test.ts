import { canaryStory } from "../support/canary-story.ts";

canaryStory(() => ({}));
