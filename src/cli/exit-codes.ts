/** What a script may rely on. The documentation is made from the table below. */
export const DONE = 0;
export const FAILED = 1;
export const USAGE_ERROR = 2;
export const FOUND = 3;
export const STOPPED = 4;

export const exitCodes: readonly { readonly code: number; readonly meaning: string }[] = [
  { code: DONE, meaning: "Done; and whatever was checked is as it should be." },
  {
    code: FAILED,
    meaning: "It failed or was refused: no database, a missing migration or right, nothing under that id.",
  },
  { code: USAGE_ERROR, meaning: "The command line or the configuration makes no sense. Nothing was done." },
  { code: FOUND, meaning: "It checked, and found something that a person should look at." },
  {
    code: STOPPED,
    meaning:
      "It did not get to its end: stopped by Ctrl-C or by its own rules, or something could not be looked at. It says what was done by then.",
  },
];
