"""The papers' tables and questions, measured."""
