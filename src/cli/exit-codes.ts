/** Exit codes that scripts may rely on. The reference page is generated from `exitCodes`. */
export const DONE = 0;
export const FAILED = 1;
export const USAGE_ERROR = 2;
export const FOUND = 3;
export const STOPPED = 4;

export const exitCodes: readonly { readonly code: number; readonly meaning: string }[] = [
  { code: DONE, meaning: "Success. A check found no problem." },
  {
    code: FAILED,
    meaning: "Failed or refused: no database, missing migration or permission, unknown id.",
  },
  { code: USAGE_ERROR, meaning: "Invalid command line or configuration. Nothing was done." },
  { code: FOUND, meaning: "A check found something that an operator should look at." },
  {
    code: STOPPED,
    meaning:
      "Incomplete: stopped by Ctrl-C or by its own rules, or part of the check was not possible. The output says what was done.",
  },
];
