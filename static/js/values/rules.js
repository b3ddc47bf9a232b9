// Rules that pages and scripts share, written by `python -m console.display.script_rules`.

/** @type {Record<NumberFormat, NumberRule>} */
export const NUMBER_RULES = {
  "integer": {"digits": 0, "factor": 1, "limit": null},
  "rate": {"digits": 1, "factor": 1, "limit": 100.0},
  "seconds": {"digits": 1, "factor": 1, "limit": 100.0},
  "milliseconds": {"digits": 1, "factor": 1000.0, "limit": null},
  "percent": {"digits": 1, "factor": 100.0, "limit": 10.0},
  "percent1": {"digits": 1, "factor": 100.0, "limit": null},
  "share": {"digits": 2, "factor": 100.0, "limit": null},
  "mebibytes": {"digits": 1, "factor": 9.5367431640625e-07, "limit": null},
  "fraction": {"digits": 2, "factor": 1, "limit": null},
};

/** @type {[seconds: number, unit: string][]} */
export const AGE_STEPS = [[86400.0, "d"], [3600.0, "h"], [60.0, "min"]];

/** @type {Record<string, string>} */
export const STATE_WORDS = {
  "IDLE": "Idle",
  "NORMAL": "Normal",
  "BUSY": "Busy",
  "TOOBUSY": "Too busy",
  "OFFLINE": "Offline",
};

/** @type {Record<string, string>} */
export const VERDICT_WORDS = {
  "checking": "Checking",
  "effective": "Effective",
  "ineffective": "No effect",
  "harmful": "Harmful",
  "no action": "No action",
};

/** @type {Record<string, string>} */
export const SEVERITY_STATES = {
  "critical": "TOOBUSY",
  "warning": "BUSY",
  "notice": "IDLE",
};

/** @type {number} */
export const LATE_INTERVALS = 2.0;

/** @type {number} */
export const GRACE_SECONDS = 2.0;
